#include "checkpoint/reader.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "checkpoint/checksum.h"
#include "checkpoint/model_files.h"
#include "checkpoint/store.h"

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t kLengthBytes = 8;

Failure storage_failure(const std::string& path, std::string rule) {
  return {path, "", std::move(rule), "", ExitCode::kStorage};
}

std::int64_t bytes_of(const StoredState& tensor, const plan::TensorBox& box) {
  return box.elements() * dtype_size(tensor.dtype);
}

std::vector<std::int64_t> shape_of(const StoredState& tensor, const plan::TensorBox& box) {
  if (tensor.shape.size() == 1) return {box.rows.length()};
  return {box.rows.length(), box.columns.length()};
}

// The header's bytes against their checksum.
Status check_header(const RandomReader& reader, const std::string& path, const std::string& expected) {
  std::array<std::byte, kLengthBytes> raw{};
  if (reader.size() < kLengthBytes) return storage_failure(path, "has no header");
  reader.read_at(0, raw);
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < raw.size(); ++i) length |= std::to_integer<std::uint64_t>(raw[i]) << (8 * i);
  const std::int64_t most = std::min(kSafetensorsHeaderLimit, reader.size() - kLengthBytes);
  if (length > static_cast<std::uint64_t>(most)) {
    return storage_failure(path, fmt::format("header: expected checksum {}, found a length of {} bytes in a file of {}",
                                             expected, length, reader.size()));
  }
  std::vector<std::byte> header(static_cast<std::size_t>(kLengthBytes) + length);
  reader.read_at(0, header);
  const std::string found = checksum_of(header);
  if (found == expected) return ok_status();
  return storage_failure(path, fmt::format("header: expected checksum {}, found {}", expected, found));
}

// A checkpoint that was renamed, or copied over another, is not gone on from as what it is called.
Status check_name(const std::string& directory, std::int64_t step) {
  const std::optional<StoredName> name = parse_stored_name(base_name(directory));
  if (!name || name->step == step) return ok_status();
  Failure failure = storage_failure(
      directory, fmt::format("holds the checkpoint of step {}, and its name says step {}", step, name->step));
  failure.nearest = "call it " + name_of_step(step);
  return failure;
}

// What an Error of the file system says, as a refusal.
Failure refusal_of(const Error& error) { return {"", "", error.what(), error.hint(), ExitCode::kStorage}; }

}  // namespace

Result<Manifest> Reader::open_manifest(Env& env, const std::string& directory) {
  try {
    if (!env.is_directory(directory)) return Failure{directory, "", "no such directory", "", ExitCode::kUsage};
    const std::string path = join_path(directory, kManifestFile);
    if (!env.exists(path)) return storage_failure(path, "missing: without it the checkpoint is not complete");
    Result<Manifest> manifest = parse_manifest(env.read_file(path), path);
    if (!manifest) return manifest;
    if (const Status status = check_name(directory, manifest->progress.step); !status) return status.failure();
    return manifest;
  } catch (const Error& error) {
    return refusal_of(error);
  }
}

std::vector<std::vector<Reader::Part>> Reader::parts_by_file(const Manifest& manifest) {
  std::vector<std::vector<Part>> parts(manifest.files.size());
  for (const StoredState& tensor : manifest.tensors) {
    for (const Slice& slice : tensor.slices) parts[static_cast<std::size_t>(slice.file)].push_back({&tensor, &slice});
  }
  return parts;
}

Result<Reader::File> Reader::open_file(Env& env, const std::string& directory, const StoredFile& stored,
                                       const std::vector<Part>& parts) {
  const std::string path = join_path(directory, stored.name);
  try {
    if (!env.exists(path))
      return storage_failure(path, fmt::format("missing; expected a file of {} bytes", stored.bytes));
    File file{path, env.open_reader(path), {}};
    if (file.reader->size() != stored.bytes) {
      return storage_failure(path, fmt::format("size: expected {} bytes, found {}", stored.bytes, file.reader->size()));
    }
    if (const Status status = check_header(*file.reader, path, stored.header_checksum); !status)
      return status.failure();
    const Result<SafetensorsHeader> header = read_safetensors_header(*file.reader, path);
    if (!header) return header.failure();

    std::map<std::string_view, const StoredTensor*> entries;
    for (const StoredTensor& entry : header->tensors) entries.emplace(entry.name, &entry);
    for (const auto& [tensor, slice] : parts) {
      const std::string key = slice_key(*tensor, slice->box);
      const auto found = entries.find(key);
      if (found == entries.end()) return storage_failure(path, fmt::format("lacks slice {}", key));
      const StoredTensor& entry = *found->second;
      const std::vector<std::int64_t> shape = shape_of(*tensor, slice->box);
      if (entry.dtype != tensor->dtype || entry.shape != shape) {
        return storage_failure(path,
                               fmt::format("slice {}: expected {} [{}], found {} [{}]", key, dtype_name(tensor->dtype),
                                           fmt::join(shape, ", "), entry.type, fmt::join(entry.shape, ", ")));
      }
      file.begins.emplace(key, entry.begin);
    }
    if (entries.size() != parts.size()) {
      return storage_failure(
          path, fmt::format("holds {} tensors; expected the {} slices of the manifest", entries.size(), parts.size()));
    }
    return file;
  } catch (const Error& error) {
    return refusal_of(error);
  }
}

Result<Reader> Reader::open(Env& env, const std::string& directory) {
  Result<Manifest> manifest = open_manifest(env, directory);
  if (!manifest) return manifest.failure();
  Reader reader;
  reader.directory_ = directory;
  reader.manifest_ = std::move(manifest).value();
  for (const StoredState& tensor : reader.manifest_.tensors) {
    if (tensor.dtype == DType::kF32) continue;
    return storage_failure(join_path(directory, kManifestFile),
                           fmt::format("tensor {}/{} is of type {}; training state is F32",
                                       plan::state_kind_name(tensor.kind), tensor.name, dtype_name(tensor.dtype)));
  }
  const std::vector<std::vector<Part>> parts = parts_by_file(reader.manifest_);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Result<File> file = open_file(env, directory, reader.manifest_.files[i], parts[i]);
    if (!file) return file.failure();
    reader.files_.push_back(std::move(file).value());
  }
  for (const StoredModelFile& stored : reader.manifest_.model_files) {
    if (const auto damage = model_file_damage(env, directory, stored, false)) {
      return Failure{"", "", *damage, "", ExitCode::kStorage};
    }
  }
  return reader;
}

void Reader::read_part(const File& file, const Part& part, std::span<std::byte> out) {
  const std::string key = slice_key(*part.tensor, part.slice->box);
  const auto begin = file.begins.find(key);
  TRIREME_CHECK(begin != file.begins.end(), "{}: no slice {}", file.path, key);
  file.reader->read_at(begin->second, out);
  const std::string found = checksum_of(out);
  if (found == part.slice->checksum) return;
  throw Error(ExitCode::kStorage, "checkpoint", "read",
              fmt::format("{}: slice {}: expected checksum {}, found {}", file.path, key, part.slice->checksum, found));
}

std::span<const float> Reader::read(const StoredState& tensor, const Slice& slice, std::span<std::byte> buffer) const {
  const auto bytes = static_cast<std::size_t>(bytes_of(tensor, slice.box));
  TRIREME_CHECK(tensor.dtype == DType::kF32 && buffer.size() >= bytes, "{} bytes for {}", buffer.size(), bytes);
  TRIREME_CHECK_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % alignof(float), std::uintptr_t{0});
  TRIREME_CHECK(slice.file >= 0 && static_cast<std::size_t>(slice.file) < files_.size());
  read_part(files_[static_cast<std::size_t>(slice.file)], {&tensor, &slice}, buffer.first(bytes));
  return {reinterpret_cast<const float*>(buffer.data()), static_cast<std::size_t>(slice.box.elements())};
}

void Reader::read_box(const StoredState& tensor, const plan::TensorBox& box, std::span<std::byte> buffer,
                      std::span<float> out) const {
  TRIREME_CHECK_EQ(static_cast<std::int64_t>(out.size()), box.elements());
  std::int64_t copied = 0;
  for (const Slice& slice : tensor.slices) {
    const plan::TensorBox part = plan::common(box, slice.box);
    if (part.elements() == 0) continue;
    const std::span<const float> values = read(tensor, slice, buffer);
    for (std::int64_t row = part.rows.begin; row < part.rows.end; ++row) {
      const std::int64_t from =
          (row - slice.box.rows.begin) * slice.box.columns.length() + part.columns.begin - slice.box.columns.begin;
      const std::int64_t to = (row - box.rows.begin) * box.columns.length() + part.columns.begin - box.columns.begin;
      std::copy_n(values.begin() + from, part.columns.length(), out.begin() + to);
    }
    copied += part.elements();
  }
  TRIREME_CHECK_EQ(copied, box.elements());  // the slices cover the tensor; less: the box is not inside it
}

Bytes Reader::largest_slice() const {
  std::int64_t most = 0;
  for (const StoredState& tensor : manifest_.tensors) {
    for (const Slice& slice : tensor.slices) most = std::max(most, bytes_of(tensor, slice.box));
  }
  return {most};
}

std::vector<std::string> damages_of(Env& env, const std::string& directory,
                                    const std::function<void(Bytes)>& progress) {
  const Result<Manifest> manifest = Reader::open_manifest(env, directory);
  if (!manifest) return {manifest.failure().sentence()};
  std::vector<std::string> damages;
  for (const StoredModelFile& stored : manifest->model_files) {
    if (auto damage = model_file_damage(env, directory, stored, true)) damages.push_back(*std::move(damage));
  }
  std::vector<std::byte> buffer;
  Bytes read{0};
  std::vector<std::vector<Reader::Part>> parts = Reader::parts_by_file(*manifest);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const StoredFile& stored = manifest->files[i];
    const Result<Reader::File> file = Reader::open_file(env, directory, stored, parts[i]);
    if (!file) {
      damages.push_back(file.failure().sentence());
      continue;
    }
    const auto begin = [&](const Reader::Part& part) {
      return file->begins.at(slice_key(*part.tensor, part.slice->box));
    };
    std::vector<std::pair<std::int64_t, Reader::Part>> in_order;
    for (const Reader::Part& part : parts[i]) in_order.emplace_back(begin(part), part);
    std::sort(in_order.begin(), in_order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    read += Bytes{in_order.empty() ? stored.bytes : in_order.front().first};  // the header
    for (const auto& [at, part] : in_order) {
      buffer.resize(static_cast<std::size_t>(bytes_of(*part.tensor, part.slice->box)));
      try {
        Reader::read_part(*file, part, buffer);
      } catch (const Error& error) {
        damages.emplace_back(error.what());
      }
      read += Bytes{static_cast<std::int64_t>(buffer.size())};
      if (progress) progress(read);
    }
  }
  return damages;
}

}  // namespace trireme::checkpoint
