#include "checkpoint/safetensors_writer.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/units.h"

namespace trireme::checkpoint {
namespace {

constexpr std::size_t kHeaderAlignment = 8;

Json entry_of(const TensorSpec& tensor, std::int64_t begin, std::int64_t end) {
  Json shape = Json::array();
  for (const std::int64_t size : tensor.shape) shape.push_back(size);
  return Json::object({{"dtype", dtype_name(tensor.dtype)},
                       {"shape", std::move(shape)},
                       {"data_offsets", Json(Json::Array{begin, end})}});
}

}  // namespace

std::int64_t bytes_of(const TensorSpec& tensor) {
  std::int64_t bytes = dtype_size(tensor.dtype);
  for (const std::int64_t size : tensor.shape) {
    TRIREME_CHECK_GE(size, 0);
    bytes = checked_multiply(bytes, size);
  }
  return bytes;
}

std::string safetensors_header(std::span<const TensorSpec> tensors, const Metadata& metadata) {
  Json::Object header;
  Json texts = Json::object();
  for (const auto& [key, value] : metadata) texts[key] = value;
  header.emplace_back("__metadata__", std::move(texts));
  std::set<std::string_view> names = {"__metadata__"};
  std::int64_t at = 0;
  for (const TensorSpec& tensor : tensors) {
    TRIREME_CHECK(names.insert(tensor.name).second, "tensor \"{}\" twice, or reserved", tensor.name);
    const std::int64_t end = checked_add(at, bytes_of(tensor));
    header.emplace_back(tensor.name, entry_of(tensor, at, end));
    at = end;
  }
  std::string text = Json(std::move(header)).dump();
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  TRIREME_CHECK_LE(static_cast<std::int64_t>(text.size()), kSafetensorsHeaderLimit);
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(text.size() >> (8 * i));
  return length + text;
}

SafetensorsWriter::SafetensorsWriter(Env& env, const std::string& path, std::vector<TensorSpec> tensors,
                                     const Metadata& metadata)
    : file_(env, path) {
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const TensorSpec& a, const TensorSpec& b) { return dtype_size(a.dtype) > dtype_size(b.dtype); });
  const std::string bytes = safetensors_header(tensors, metadata);
  auto at = static_cast<std::int64_t>(bytes.size());
  for (const TensorSpec& tensor : tensors) {
    const std::int64_t end = checked_add(at, bytes_of(tensor));
    parts_.emplace(tensor.name, Part{tensor.dtype, at, end});
    at = end;
  }
  file_.writer().write_text(bytes);
}

SafetensorsWriter::Part& SafetensorsWriter::part(std::string_view name) {
  const auto found = parts_.find(name);
  TRIREME_CHECK(found != parts_.end(), "tensor \"{}\" was not announced", name);
  return found->second;
}

void SafetensorsWriter::write(std::string_view name, std::span<const std::byte> data) {
  Part& target = part(name);
  const auto size = static_cast<std::int64_t>(data.size());
  TRIREME_CHECK(size <= target.end - target.next, "tensor \"{}\": {} more bytes, {} expected", name, size,
                target.end - target.next);
  if (data.empty()) return;
  file_.writer().write_at(target.next, data);
  target.next += size;
}

void SafetensorsWriter::write_floats(std::string_view name, std::span<const float> values) {
  constexpr std::size_t kPiece = std::size_t{1} << 18;
  const DType dtype = part(name).dtype;
  std::vector<std::byte> raw;
  while (!values.empty()) {
    const std::span<const float> piece = values.first(std::min(kPiece, values.size()));
    raw.resize(piece.size() * static_cast<std::size_t>(dtype_size(dtype)));
    convert_from_f32(dtype, piece, raw);
    write(name, raw);
    values = values.subspan(piece.size());
  }
}

void SafetensorsWriter::finish() {
  for (const auto& [name, part] : parts_) {
    TRIREME_CHECK(part.next == part.end, "tensor \"{}\": {} bytes were not written", name, part.end - part.next);
  }
  file_.commit();
}

}  // namespace trireme::checkpoint
