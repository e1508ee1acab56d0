#include "checkpoint/shard.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "checkpoint/checksum.h"
#include "checkpoint/safetensors_writer.h"

namespace trireme::checkpoint {
namespace {

// Slices smaller than this are gathered, so that a write is worth its call.
constexpr std::size_t kPiece = std::size_t{1} << 20;

const StoredState& tensor_of(const std::vector<StoredState>& tensors, const ShardSlice& slice) {
  TRIREME_CHECK(slice.tensor >= 0 && static_cast<std::size_t>(slice.tensor) < tensors.size(),
                "tensor {} of a shard's slice, {} tensors", slice.tensor, tensors.size());
  return tensors[static_cast<std::size_t>(slice.tensor)];
}

std::vector<TensorSpec> specs_of(const std::vector<StoredState>& tensors, const std::vector<ShardSlice>& slices) {
  std::vector<TensorSpec> specs;
  specs.reserve(slices.size());
  for (const ShardSlice& slice : slices) {
    const StoredState& tensor = tensor_of(tensors, slice);
    TensorSpec& spec = specs.emplace_back();
    spec.name = slice_key(tensor, slice.box);
    spec.dtype = tensor.dtype;
    spec.shape = {slice.box.rows.length()};
    if (tensor.shape.size() > 1) spec.shape.push_back(slice.box.columns.length());
  }
  return specs;
}

std::int64_t total_bytes(const std::string& header, const std::vector<TensorSpec>& specs) {
  auto total = static_cast<std::int64_t>(header.size());
  for (const TensorSpec& spec : specs) total = checked_add(total, bytes_of(spec));
  return total;
}

// Writes in order, small parts gathered, large ones as they are.
class Gatherer {
 public:
  Gatherer(Writer& writer, std::int64_t total) : writer_(writer) {
    gathered_.reserve(std::min(kPiece, static_cast<std::size_t>(total)));
  }

  void add(std::span<const std::byte> data) {
    if (gathered_.size() + data.size() > kPiece) flush();
    if (data.size() >= kPiece) {
      writer_.write(data);
    } else {
      gathered_.insert(gathered_.end(), data.begin(), data.end());
    }
  }
  void flush() {
    if (!gathered_.empty()) writer_.write(gathered_);
    gathered_.clear();
  }

 private:
  Writer& writer_;
  std::vector<std::byte> gathered_;
};

}  // namespace

std::string to_text(const ShardRecord& record) {
  Json checksums = Json::array();
  for (const std::string& checksum : record.checksums) checksums.push_back(checksum);
  return Json::object({{"name", record.file.name},
                       {"bytes", record.file.bytes},
                       {"header_checksum", record.file.header_checksum},
                       {"checksums", std::move(checksums)}})
      .dump();
}

ShardRecord shard_record_from_text(const std::string& text) {
  const Result<Json> json = parse_json(text, "shard record");
  const auto member = [&](std::string_view key) -> const Json& {
    const Json* found = json.ok() ? json->find(key) : nullptr;
    TRIREME_CHECK(found != nullptr, "no shard record, lacks {}: {}", key, text);
    return *found;
  };
  ShardRecord record;
  record.file = {member("name").as_string(), member("bytes").as_integer(), member("header_checksum").as_string()};
  for (const Json& checksum : member("checksums").as_array()) record.checksums.push_back(checksum.as_string());
  TRIREME_CHECK(to_text(record) == text, "no shard record: {}", text);
  return record;
}

std::vector<ShardSlice> slices_of_rank(const model::ParameterTable& table, const plan::Layout& layout, int rank) {
  const std::vector<plan::LocalBox> tiles = plan::written_tiles(table, layout, rank);
  std::vector<ShardSlice> slices;
  slices.reserve(tiles.size() * std::size(plan::kStateKinds));
  for (std::size_t kind = 0; kind < std::size(plan::kStateKinds); ++kind) {
    const auto first = static_cast<int>(kind * table.parameters.size());  // states_of(): kind by kind
    for (const plan::LocalBox& tile : tiles) slices.push_back({.tensor = first + tile.parameter, .box = tile.box});
  }
  return slices;
}

Bytes shard_bytes(const std::vector<StoredState>& tensors, const std::vector<ShardSlice>& slices) {
  const std::vector<TensorSpec> specs = specs_of(tensors, slices);
  return Bytes{total_bytes(safetensors_header(specs), specs)};
}

ShardRecord write_shard(Env& env, const std::string& path, const std::vector<StoredState>& tensors,
                        const std::vector<ShardSlice>& slices, const SliceBytes& slice_bytes) {
  const std::vector<TensorSpec> specs = specs_of(tensors, slices);
  const std::string header = safetensors_header(specs);
  ShardRecord record;
  record.file = {base_name(path), total_bytes(header, specs), checksum_of(header)};
  record.checksums.reserve(slices.size());

  const std::unique_ptr<Writer> writer = env.create_file(path);
  writer->reserve(Bytes{record.file.bytes});
  Gatherer gatherer(*writer, record.file.bytes);
  gatherer.add(std::as_bytes(std::span(header)));
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::span<const std::byte> data = slice_bytes(i);
    TRIREME_CHECK(static_cast<std::int64_t>(data.size()) == bytes_of(specs[i]), "slice {}: {} bytes, {} expected",
                  specs[i].name, data.size(), bytes_of(specs[i]));
    record.checksums.push_back(checksum_of(data));
    gatherer.add(data);
  }
  gatherer.flush();
  writer->sync();
  writer->close();
  return record;
}

void add_shards(Manifest& manifest, const std::vector<std::vector<ShardSlice>>& slices,
                const std::vector<ShardRecord>& records) {
  TRIREME_CHECK_EQ(slices.size(), records.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    TRIREME_CHECK_EQ(slices[i].size(), records[i].checksums.size());
    const int file = static_cast<int>(manifest.files.size());
    manifest.files.push_back(records[i].file);
    for (std::size_t k = 0; k < slices[i].size(); ++k) {
      tensor_of(manifest.tensors, slices[i][k]);  // checks the index
      StoredState& tensor = manifest.tensors[static_cast<std::size_t>(slices[i][k].tensor)];
      tensor.slices.push_back({file, slices[i][k].box, records[i].checksums[k]});
    }
  }
}

}  // namespace trireme::checkpoint
