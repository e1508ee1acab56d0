#include "checkpoint/test_checkpoint.h"

#include "checkpoint/checksum.h"

namespace trireme::checkpoint {

std::vector<float> values_of(const StoredState& tensor, const plan::TensorBox& box, const ValueOf& value) {
  std::vector<float> values;
  for (std::int64_t row = box.rows.begin; row < box.rows.end; ++row) {
    for (std::int64_t column = box.columns.begin; column < box.columns.end; ++column) {
      values.push_back(value(tensor, row, column));
    }
  }
  return values;
}

Manifest put_checkpoint(FakeEnv& env, const std::string& directory, Manifest manifest, const ValueOf& value) {
  std::vector<Json> headers(manifest.files.size(), Json::object());
  std::vector<std::string> data(manifest.files.size());
  for (StoredState& tensor : manifest.tensors) {
    for (Slice& slice : tensor.slices) {
      const auto file = static_cast<std::size_t>(slice.file);
      const std::vector<float> values = values_of(tensor, slice.box, value);
      const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
      slice.checksum = checksum_of(bytes);
      Json::Array shape{slice.box.rows.length()};
      if (tensor.shape.size() > 1) shape.push_back(slice.box.columns.length());
      const auto begin = static_cast<std::int64_t>(data[file].size());
      data[file] += bytes;
      const auto end = static_cast<std::int64_t>(data[file].size());
      headers[file][slice_key(tensor, slice.box)] =
          Json::object({{"dtype", "F32"}, {"shape", Json(shape)}, {"data_offsets", Json(Json::Array{begin, end})}});
    }
  }
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const std::string text = headers[i].dump();
    std::string header;
    for (int b = 0; b < 8; ++b) header += static_cast<char>(text.size() >> (8 * b));
    header += text;
    manifest.files[i].header_checksum = checksum_of(header);
    manifest.files[i].bytes = static_cast<std::int64_t>(header.size() + data[i].size());
    env.put_file(join_path(directory, manifest.files[i].name), header + data[i]);
  }
  env.put_file(join_path(directory, kManifestFile), to_text(manifest));
  return manifest;
}

Manifest handmade_manifest() {
  Manifest manifest;
  manifest.progress.step = 40;
  manifest.files = {{"part-00000.safetensors", 0, ""}, {"part-00001.safetensors", 0, ""}};
  for (const plan::StateKind kind : plan::kStateKinds) {
    manifest.tensors.push_back({"a.weight",
                                kind,
                                {4, 6},
                                DType::kF32,
                                {{0, {{0, 3}, {0, 2}}, ""}, {1, {{0, 3}, {2, 6}}, ""}, {1, {{3, 4}, {0, 6}}, ""}}});
    manifest.tensors.push_back({"b", kind, {5}, DType::kF32, {{1, {{2, 5}, {0, 1}}, ""}, {0, {{0, 2}, {0, 1}}, ""}}});
  }
  return manifest;
}

float handmade_value(const StoredState& tensor, std::int64_t row, std::int64_t column) {
  const auto kind = static_cast<std::int64_t>(tensor.kind);
  return static_cast<float>((tensor.shape.size() * 10 + kind) * 100 + row * 10 + column);
}

}  // namespace trireme::checkpoint
