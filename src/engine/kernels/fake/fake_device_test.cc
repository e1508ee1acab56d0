#include "engine/kernels/fake/fake_device.h"

#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/attention_tile.h"
#include "base/error.h"
#include "base/random.h"
#include "engine/kernels/arena.h"

namespace trireme::kernels {
namespace {

// Tensors of doubles on a device.
class Pool {
 public:
  explicit Pool(Device& device) : device_(device), arena_(device, {}) {}

  TensorView zeros(std::int64_t rows, std::int64_t columns) {
    return upload(std::vector<double>(static_cast<std::size_t>(rows * columns)), rows, columns);
  }
  TensorView random(std::int64_t rows, std::int64_t columns) {
    std::vector<double> values(static_cast<std::size_t>(rows * columns));
    const RandomKey key{7, ++made_};
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = random_normal(key, i);
    return upload(values, rows, columns);
  }
  std::span<const std::int32_t> ids(const std::vector<std::int32_t>& values) {
    const std::byte* data = upload_bytes(values.data(), {static_cast<std::int64_t>(values.size() * 4)});
    return {reinterpret_cast<const std::int32_t*>(data), values.size()};
  }
  std::vector<double> download(ConstTensorView view) {
    std::vector<double> values(static_cast<std::size_t>(view.elements()));
    device_.copy_to_host(values.data(), view.data, {view.elements() * 8});
    return values;
  }

 private:
  TensorView upload(const std::vector<double>& values, std::int64_t rows, std::int64_t columns) {
    return make_view(upload_bytes(values.data(), {rows * columns * 8}), DType::kF64, rows, columns);
  }
  std::byte* upload_bytes(const void* source, Bytes bytes) {
    buffers_.push_back(arena_.allocate(MemoryClass::kWorkspace, "test", bytes));
    device_.copy_to_device(buffers_.back().data(), source, bytes);
    return buffers_.back().data();
  }
  Device& device_;
  Arena arena_;
  std::vector<Buffer> buffers_;
  std::uint64_t made_ = 0;
};

using Results = std::vector<std::vector<double>>;

void run_simple_kernels(Kernels& k, Pool& pool, std::vector<TensorView>& results) {
  const TensorView x = pool.random(4, 6);
  const TensorView y = pool.random(4, 6);
  const TensorView product = pool.random(6, 6);
  k.gemm({.a = x, .transpose_a = true, .b = y, .c = product, .accumulate = true});
  const TensorView bias = pool.random(1, 6);
  k.add_bias(x, bias);
  const TensorView sums = pool.zeros(1, 6);
  k.column_sum(x, sums, true);
  const TensorView added = pool.zeros(4, 6);
  {
    const std::vector<std::uint64_t> streams{3, 4};  // gone when the worker looks
    const Dropout dropout{.probability = 0.4, .seed = 1, .streams = streams, .sequence = 2, .columns_total = 6};
    k.residual_add(added, x, y, bias, dropout);
    k.apply_dropout(y, y, dropout);
  }
  const TensorView part = pool.zeros(2, 3);
  k.fill(part, 0.5);
  k.copy(column_range(row_range(y, 0, 2), 1, 3), part);
  k.add(row_range(added, 0, 4), x);
  k.scale(added, 0.3);
  const TensorView table = pool.random(3, 6);
  const auto ids = pool.ids({2, 0, 1, 2});
  k.embedding_forward(ids, table, 0, x);
  const TensorView d_table = pool.zeros(3, 6);
  k.embedding_backward(ids, y, 1, d_table, true);
  k.position_forward(table, 2, x);
  k.position_backward(x, 2, d_table, true);
  const TensorView turned = pool.random(4, 6);
  k.rotary(turned, 3, 2, pool.random(2, 2), 2, true);
  const TensorView m = pool.random(1, 6);
  const TensorView v = pool.zeros(1, 6);
  k.adamw({.learning_rate = 0.1}, bias, sums, m, v, {});
  const TensorView blocks = pool.zeros(1, 1);
  k.square_blocks(x, blocks);
  for (const TensorView& view : {x, y, product, bias, sums, added, part, d_table, turned, m, v, blocks}) {
    results.push_back(view);
  }
}

void run_layer_kernels(Kernels& k, Pool& pool, std::vector<TensorView>& results) {
  const TensorView x = pool.random(4, 6);
  const TensorView weight = pool.random(1, 6);
  const TensorView bias = pool.random(1, 6);
  const TensorView y = pool.zeros(4, 6);
  const TensorView again = pool.zeros(4, 6);
  const TensorView stats = pool.zeros(4, 2);
  k.norm_forward(NormType::kLayerNorm, x, weight, bias, 1e-5, y, stats);
  k.norm_apply(NormType::kLayerNorm, x, stats, weight, bias, again);
  const TensorView d_x = pool.random(4, 6);
  k.norm_backward_input(NormType::kLayerNorm, y, x, stats, weight, d_x, d_x);
  const TensorView d_weight = pool.zeros(1, 6);
  const TensorView d_bias = pool.zeros(1, 6);
  k.norm_backward_weight(NormType::kLayerNorm, y, x, stats, d_weight, d_bias, false);
  const TensorView sums = pool.zeros(1, 4);
  const TensorView dots = pool.zeros(1, 4);
  const TensorView cut_stats = pool.zeros(4, 2);
  const TensorView cut_d_x = pool.random(4, 6);
  k.row_square_sums(x, sums);
  k.stats_of_square_sums(sums, 12, 1e-5, cut_stats);
  k.norm_row_dots(y, x, cut_stats, weight, dots);
  k.norm_backward_input_of_dots(y, x, cut_stats, weight, dots, 12, cut_d_x, cut_d_x);
  const TensorView d_gate = pool.zeros(4, 6);
  const TensorView act = pool.zeros(4, 6);
  k.activation_forward(ActivationType::kSilu, x, y, act);
  k.activation_backward(ActivationType::kSilu, act, x, y, d_gate, act);

  const TensorView out = pool.zeros(4, 6);
  const TensorView windowed = pool.zeros(4, 6);
  const TensorView log_sum_exp = pool.zeros(6, 2);
  const TensorView d_q = pool.zeros(4, 6);
  const TensorView d_k = pool.zeros(4, 2);
  const TensorView d_v = pool.zeros(4, 2);
  const TensorView scratch = pool.zeros(1, attention_backward_scratch(2, 2));
  const TensorView keys = pool.random(4, 2);
  const TensorView values = pool.random(4, 2);
  {
    const std::vector<std::uint64_t> streams{5, 6};
    AttentionShape shape{.sequences = 2,
                         .sequence = 2,
                         .heads = 3,
                         .kv_heads = 1,
                         .head_dim = 2,
                         .scale = 0.7,
                         .dropout = {.probability = 0.3, .seed = 1, .streams = streams}};
    k.attention_forward({shape, x, keys, values, out, log_sum_exp, scratch});
    k.attention_backward({shape, x, keys, values, out, log_sum_exp, y, d_q, d_k, d_v, scratch});
    shape.window = 1;
    k.attention_forward({shape, x, keys, values, windowed, log_sum_exp, scratch});
  }
  const auto targets = pool.ids({0, 5, kIgnoredTarget, 1});
  const TensorView logits = pool.random(4, 6);
  const TensorView row_max = pool.zeros(1, 4);
  const TensorView row_sum = pool.zeros(1, 4);
  const TensorView target_logit = pool.zeros(1, 4);
  const TensorView loss = pool.zeros(1, 4);
  k.row_maximum(logits, row_max);
  k.softmax_sum(logits, row_max, targets, 0, row_sum, target_logit);
  k.cross_entropy_loss(row_max, row_sum, target_logit, targets, loss);
  k.cross_entropy_backward(logits, row_max, row_sum, targets, 0, 0.5);
  for (const TensorView& view :
       {y,   again,    stats,       d_x, d_weight, d_bias, sums,   cut_stats, dots,    cut_d_x,      d_gate, act,
        out, windowed, log_sum_exp, d_q, d_k,      d_v,    logits, row_max,   row_sum, target_logit, loss}) {
    results.push_back(view);
  }
}

Results run_every_kernel(Device& device) {
  Pool pool(device);
  std::vector<TensorView> views;
  run_simple_kernels(device.kernels(), pool, views);
  run_layer_kernels(device.kernels(), pool, views);
  Results results;
  for (const TensorView& view : views) results.push_back(pool.download(view));
  return results;
}

TEST(FakeDevice, EveryKernelGivesTheReferencesBits) {
  const Results expected = run_every_kernel(*make_reference_device());
  EXPECT_EQ(run_every_kernel(*make_fake_device()), expected);
}

TEST(FakeDevice, DelaysChangeNoResult) {
  const Results expected = run_every_kernel(*make_reference_device());
  const auto device = make_fake_device({.longest_delay = Seconds{0.0005}, .delay_seed = 3});
  EXPECT_EQ(run_every_kernel(*device), expected);
}

TEST(FakeDevice, CallsReturnBeforeTheWorkIsDone) {
  const auto device = make_fake_device({.longest_delay = Seconds{0.02}, .delay_seed = 1});
  EXPECT_EQ(device->name(), "fake");
  EXPECT_EQ(device->kernels().threads(), 1);
  EXPECT_NE(device->stream().native, nullptr);
  std::byte* data = device->allocate({8});
  const TensorView x = make_view(data, DType::kF64, 1, 1);
  double value = 3.0;
  device->copy_to_device(data, &value, {8});
  value = 100.0;  // the copy is taken at the call
  for (int i = 0; i < 5; ++i) device->kernels().add(x, x);
  device->copy_to_host(&value, data, {8});
  EXPECT_EQ(value, 96.0);
  device->kernels().fill(x, 1.0);
  device->deallocate(data, {8});  // behind the fill
  device->synchronize();
}

TEST(FakeDevice, CopiesOfNothing) {
  const auto device = make_fake_device();
  device->copy_to_device(nullptr, nullptr, {0});
  device->copy_to_host(nullptr, nullptr, {0});
}

std::string synchronize_message(Device& device) {
  try {
    device.synchronize();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

TEST(FakeDevice, AnErrorComesOutAtTheNextWaitAndStays) {
  const auto device = make_fake_device();
  std::byte* data = device->allocate({16});
  const TensorView x = make_view(data, DType::kF64, 1, 2);
  device->kernels().fill(x, 1.0);
  device->kernels().add(x, make_view(data, DType::kF64, 1, 1));  // wrong shape: the worker finds out
  device->kernels().add(x, make_view(data, DType::kF32, 1, 2));  // dropped: the first error counts
  EXPECT_NE(synchronize_message(*device).find("x is [1, 1], not [1, 2]"), std::string::npos);
  EXPECT_NE(synchronize_message(*device).find("x is [1, 1], not [1, 2]"), std::string::npos);
  std::array<double, 2> values{};
  EXPECT_THROW(device->copy_to_host(values.data(), data, {16}), InternalError);
  device->deallocate(data, {16});
}

TEST(FakeDevice, AWaitHasADeadline) {
  const auto device = make_fake_device({.longest_delay = Seconds{600}, .deadline = Seconds{0.05}});
  std::byte* data = device->allocate({8});
  device->kernels().fill(make_view(data, DType::kF64, 1, 1), 1.0);
  try {
    device->synchronize();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kHang);
    EXPECT_STREQ(error.what(), "kernels: synchronize: the device has not finished after 50.0 ms");
  }
  device->deallocate(data, {8});
}

TEST(FakeDevice, HostMemoryIsRefusedByKernels) {
  const auto device = make_fake_device();
  double value = 0;
  const TensorView host = make_view(reinterpret_cast<std::byte*>(&value), DType::kF64, 1, 1);
  EXPECT_THROW(device->kernels().fill(host, 1.0), InternalError);
  std::byte* data = device->allocate({8});
  const TensorView here = make_view(data, DType::kF64, 1, 1);
  EXPECT_THROW(device->kernels().add(here, host), InternalError);
  const std::array<std::int32_t, 1> ids{0};
  EXPECT_THROW(device->kernels().embedding_forward(ids, here, 0, here), InternalError);
  EXPECT_THROW(device->copy_to_device(data, data, {8}), InternalError);
  EXPECT_THROW(device->copy_to_host(data, data, {8}), InternalError);
  EXPECT_THROW(device->copy_to_device(reinterpret_cast<std::byte*>(&value), &value, {8}), InternalError);
  device->deallocate(data, {8});
}

TEST(FakeDevice, AllocationsAreAligned) {
  const auto device = make_fake_device();
  std::byte* data = device->allocate({1});
  EXPECT_TRUE(fake::is_device_address(data));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % kAllocationAlignment, 0u);
  device->deallocate(data, {1});
}

TEST(FakeDeviceDeathTest, HostAccessFaults) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer computes shadow addresses of its own for a bad pointer";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto read = [] {
    const auto device = make_fake_device();
    const std::byte* data = device->allocate({8});
    return *reinterpret_cast<const volatile std::uint8_t*>(data);
  };
  const auto write = [] {
    const auto device = make_fake_device();
    *reinterpret_cast<volatile double*>(device->allocate({8})) = 1.0;
  };
  EXPECT_DEATH(read(), "");
  EXPECT_DEATH(write(), "");
}

}  // namespace
}  // namespace trireme::kernels
