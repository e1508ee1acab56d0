#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"
#include "base/file_format.h"
#include "base/json.h"
#include "base/units.h"
#include "checkpoint/safetensors_folder.h"

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t kLengthBytes = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

// A slice is read through a window of at most this; two runs less apart than the gap are one read.
constexpr std::int64_t kWindowBytes = std::int64_t{4} << 20;
constexpr std::int64_t kGapBytes = std::int64_t{16} << 10;

struct TypeSize {
  std::string_view name;
  std::int64_t bytes;
};
constexpr std::array<TypeSize, 16> kTypes{{{"F64", 8},
                                           {"F32", 4},
                                           {"F16", 2},
                                           {"BF16", 2},
                                           {"I64", 8},
                                           {"I32", 4},
                                           {"I16", 2},
                                           {"I8", 1},
                                           {"U64", 8},
                                           {"U32", 4},
                                           {"U16", 2},
                                           {"U8", 1},
                                           {"BOOL", 1},
                                           {"F8_E4M3", 1},
                                           {"F8_E5M2", 1},
                                           {"C64", 8}}};

Failure bad_file(const std::string& path, std::string rule) {
  return {path, "", std::move(rule), "", ExitCode::kStorage};
}

Failure another_format(const std::string& path, const FileFormat& format, std::string_view wanted) {
  constexpr std::string_view kConvert = "save_pretrained of Python's transformers writes safetensors";
  return {path, "", fmt::format("is {}, not {}", format.name, wanted),
          std::string(format.remedy.empty() ? kConvert : format.remedy), ExitCode::kStorage};
}

std::string shape_text(std::span<const std::int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// The product, or nothing if it does not fit.
std::optional<std::int64_t> product_of(std::span<const std::int64_t> factors, std::int64_t start) {
  std::int64_t product = start;
  for (const std::int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return std::nullopt;
  }
  return product;
}

// A list of integers that are not negative.
std::optional<std::vector<std::int64_t>> read_sizes(const Json* value) {
  if (value == nullptr || !value->is_array()) return std::nullopt;
  std::vector<std::int64_t> sizes;
  for (const Json& item : value->as_array()) {
    if (!item.is_integer() || item.as_integer() < 0) return std::nullopt;
    sizes.push_back(item.as_integer());
  }
  return sizes;
}

// One entry of the header. Offsets still count from the end of the header.
Result<StoredTensor> read_entry(const std::string& path, const std::string& name, const Json& entry) {
  const auto refuse = [&](std::string_view rule) {
    return bad_file(path, fmt::format("tensor \"{}\": {}", name, rule));
  };
  if (!entry.is_object()) return refuse("its entry must be an object");
  StoredTensor tensor;
  tensor.name = name;

  const Json* type = entry.find("dtype");
  if (type == nullptr || !type->is_string()) return refuse("dtype must be a text");
  tensor.type = type->as_string();
  const auto* size =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeSize& t) { return t.name == tensor.type; });
  if (size == kTypes.end()) return refuse(fmt::format("dtype \"{}\" is not known", tensor.type));
  if (const Result<DType> dtype = parse_dtype(tensor.type); dtype.ok()) tensor.dtype = *dtype;

  const auto shape = read_sizes(entry.find("shape"));
  if (!shape) return refuse("shape must be a list of integers that are not negative");
  tensor.shape = *shape;

  const auto offsets = read_sizes(entry.find("data_offsets"));
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return refuse("data_offsets must be two integers, begin and end");
  }
  tensor.begin = (*offsets)[0];
  tensor.end = (*offsets)[1];

  const auto needed = product_of(tensor.shape, size->bytes);
  if (!needed) return refuse(fmt::format("shape {} is beyond 2^63 bytes", shape_text(tensor.shape)));
  if (*needed != tensor.bytes()) {
    return refuse(fmt::format("holds {} bytes, but {} {} needs {}", tensor.bytes(), tensor.type,
                              shape_text(tensor.shape), *needed));
  }
  return tensor;
}

Result<Metadata> read_metadata(const std::string& path, const Json& entry) {
  const Failure refused = bad_file(path, "__metadata__ must be an object of texts");
  if (!entry.is_object()) return refused;
  Metadata metadata;
  for (const auto& [key, value] : entry.as_object()) {
    if (!value.is_string()) return refused;
    metadata.emplace_back(key, value.as_string());
  }
  return metadata;
}

// Sorts by offset and refuses overlaps, holes, and bytes that are missing or left over.
Status check_ranges(const std::string& path, std::vector<StoredTensor>& tensors, std::int64_t data_bytes) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::int64_t at = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.begin != at) {
      return bad_file(path, fmt::format("tensor \"{}\" begins at byte {} of the data, the one before ends at {}: {}",
                                        tensor.name, tensor.begin, at, tensor.begin < at ? "an overlap" : "a hole"));
    }
    at = tensor.end;
  }
  if (at > data_bytes) {
    return bad_file(path, fmt::format("truncated: the tensors need {} bytes, the file has {}", at, data_bytes));
  }
  if (at < data_bytes) {
    return bad_file(path, fmt::format("{} bytes follow the last tensor", data_bytes - at));
  }
  return ok_status();
}

// The header's text, from a file whose size allows it.
Result<std::string> read_header_text(const RandomReader& reader, const std::string& path) {
  const std::int64_t size = reader.size();
  if (size < kLengthBytes) {
    return bad_file(path, fmt::format("truncated: {} bytes, the length of the header alone takes 8", size));
  }
  std::array<std::byte, kLengthBytes> raw{};
  reader.read_at(0, raw);
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < raw.size(); ++i) length |= std::to_integer<std::uint64_t>(raw[i]) << (8 * i);
  if (length > static_cast<std::uint64_t>(kSafetensorsHeaderLimit)) {
    std::vector<std::byte> head(static_cast<std::size_t>(std::min(size, kFormatHead)));
    reader.read_at(0, head);
    if (const std::optional<FileFormat> other = recognise_format(head)) {
      return another_format(path, *other, "a safetensors file");
    }
    return bad_file(path, fmt::format("header of {} bytes is beyond the limit of {}: not a safetensors file?", length,
                                      format_exact(kSafetensorsHeaderLimit)));
  }
  if (static_cast<std::int64_t>(length) > size - kLengthBytes) {
    return bad_file(path, fmt::format("truncated: the header has {} bytes, the file {}", length, size));
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  reader.read_at(kLengthBytes, std::as_writable_bytes(std::span(text.data(), text.size())));
  if (text.empty() || text.front() != '{') return bad_file(path, "the header does not begin with {");
  return text;
}

// Contiguous runs of a hyper-rectangle in a row-major tensor: inner dimensions that are taken whole are one
// run. Not for empty slices, whose other dimensions may be of any size.
class Runs {
 public:
  Runs(const StoredTensor& tensor, std::span<const std::int64_t> begin, std::span<const std::int64_t> extent,
       std::int64_t element_bytes)
      : begin_(begin), extent_(extent), strides_(tensor.shape.size()), element_bytes_(element_bytes) {
    std::int64_t stride = 1;
    for (std::size_t d = strides_.size(); d-- > 0; stride *= tensor.shape[d]) strides_[d] = stride;
    outer_ = strides_.size();
    while (outer_ > 0) {
      --outer_;
      elements_ *= extent[outer_];
      first_ += begin[outer_] * strides_[outer_];
      if (extent[outer_] != tensor.shape[outer_]) break;
    }
    for (std::size_t d = 0; d < outer_; ++d) count_ *= extent[d];
  }

  std::int64_t count() const { return count_; }
  std::int64_t elements() const { return elements_; }  // of each
  std::int64_t bytes() const { return elements_ * element_bytes_; }
  // Of run r, from the tensor's first byte. Ascending in r.
  std::int64_t offset(std::int64_t r) const {
    std::int64_t element = first_;
    for (std::size_t d = outer_; d-- > 0; r /= extent_[d]) element += (begin_[d] + r % extent_[d]) * strides_[d];
    return element * element_bytes_;
  }

 private:
  std::span<const std::int64_t> begin_;
  std::span<const std::int64_t> extent_;
  std::vector<std::int64_t> strides_;  // in elements
  std::int64_t element_bytes_;
  std::size_t outer_ = 0;  // dimensions that are walked run by run
  std::int64_t first_ = 0;
  std::int64_t elements_ = 1;
  std::int64_t count_ = 1;
};

// Reads the runs of one tensor as float32.
class RunReader {
 public:
  RunReader(const RandomReader& file, const StoredTensor& tensor, const Runs& runs, std::span<float> out)
      : file_(file), tensor_(tensor), runs_(runs), out_(out) {}

  void read() {
    for (std::int64_t r = 0; r < runs_.count();) {
      r = runs_.bytes() >= kWindowBytes ? read_long_run(r) : read_short_runs(r);
    }
    TRIREME_CHECK(out_.empty());
  }

 private:
  // Both return the next run.
  std::int64_t read_long_run(std::int64_t r) {
    const std::int64_t begin = runs_.offset(r);
    for (std::int64_t at = 0; at < runs_.bytes(); at += kWindowBytes) {
      const std::int64_t size = std::min(kWindowBytes, runs_.bytes() - at);
      load(begin + at, size);
      convert(0, size);
    }
    return r + 1;
  }
  std::int64_t read_short_runs(std::int64_t r) {
    const std::int64_t begin = runs_.offset(r);
    std::int64_t last = r;
    std::int64_t end = begin + runs_.bytes();
    while (last + 1 < runs_.count()) {
      const std::int64_t next = runs_.offset(last + 1);
      if (next - end > kGapBytes || next + runs_.bytes() - begin > kWindowBytes) break;
      end = next + runs_.bytes();
      ++last;
    }
    load(begin, end - begin);
    for (std::int64_t i = r; i <= last; ++i) convert(runs_.offset(i) - begin, runs_.bytes());
    return last + 1;
  }

  void load(std::int64_t offset, std::int64_t size) {
    window_.resize(static_cast<std::size_t>(size));
    file_.read_at(tensor_.begin + offset, window_);
  }
  void convert(std::int64_t offset, std::int64_t size) {
    const auto elements = static_cast<std::size_t>(size / dtype_size(*tensor_.dtype));
    convert_to_f32(*tensor_.dtype,
                   std::span(window_).subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size)),
                   out_.first(elements));
    out_ = out_.subspan(elements);
  }

  const RandomReader& file_;
  const StoredTensor& tensor_;
  const Runs& runs_;
  std::span<float> out_;
  std::vector<std::byte> window_;
};

}  // namespace

std::int64_t StoredTensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) product = checked_multiply(product, size);
  return product;
}

Result<SafetensorsHeader> read_safetensors_header(const RandomReader& reader, const std::string& path) {
  const Result<std::string> text = read_header_text(reader, path);
  if (!text.ok()) return text.failure();
  const Result<Json> document = parse_json(*text, path + " (header)");
  if (!document.ok()) {
    Failure failure = document.failure();
    failure.code = ExitCode::kStorage;
    return failure;
  }
  SafetensorsHeader header;
  for (const auto& [name, entry] : document->as_object()) {
    if (name == kMetadataKey) {
      Result<Metadata> metadata = read_metadata(path, entry);
      if (!metadata.ok()) return metadata.failure();
      header.metadata = std::move(metadata).value();
      continue;
    }
    Result<StoredTensor> tensor = read_entry(path, name, entry);
    if (!tensor.ok()) return tensor.failure();
    header.tensors.push_back(std::move(tensor).value());
  }
  const std::int64_t data = kLengthBytes + static_cast<std::int64_t>(text->size());
  const Status ranges = check_ranges(path, header.tensors, reader.size() - data);
  if (!ranges.ok()) return ranges.failure();
  for (StoredTensor& tensor : header.tensors) {
    tensor.begin += data;
    tensor.end += data;
  }
  return header;
}

Result<SafetensorsReader> SafetensorsReader::open(Env& env, const std::string& path) {
  SafetensorsFolder found;
  if (env.is_directory(path)) {
    const Result<SafetensorsFolder> inside = safetensors_in(env, path);
    if (!inside.ok()) return inside.failure();
    found = *inside;
  } else if (path.ends_with(".json")) {
    found.index = path;
  } else {
    found.files = {path};
  }
  SafetensorsReader reader;
  if (!found.index.empty()) {
    if (Status status = reader.add_indexed_files(env, found.index); !status.ok()) return status.failure();
  }
  for (const std::string& file : found.files) {
    if (Status status = reader.add_file(env, file); !status.ok()) return status.failure();
  }
  return reader;
}

Status SafetensorsReader::add_file(Env& env, const std::string& path) {
  std::shared_ptr<const RandomReader> reader = env.open_reader(path);
  Result<SafetensorsHeader> header = read_safetensors_header(*reader, path);
  if (!header.ok()) return header.failure();
  SafetensorsHeader contents = std::move(header).value();
  for (StoredTensor& tensor : contents.tensors) {
    tensor.file = paths_.size();
    const auto [entry, added] = by_name_.emplace(tensor.name, tensors_.size());
    if (!added) {
      return bad_file(path,
                      fmt::format("tensor \"{}\" is in {} too", tensor.name, paths_[tensors_[entry->second].file]));
    }
    tensors_.push_back(std::move(tensor));
  }
  for (auto& [key, value] : contents.metadata) {
    const bool known = std::any_of(metadata_.begin(), metadata_.end(), [&](const auto& m) { return m.first == key; });
    if (!known) metadata_.emplace_back(key, std::move(value));
  }
  paths_.push_back(path);
  readers_.push_back(std::move(reader));
  return ok_status();
}

namespace {

// Files that an index names and that are not there; and one that is there and that it does not name.
Failure missing_shards(Env& env, const std::string& index_path, const std::vector<std::string>& missing,
                       const std::set<std::string>& named) {
  Failure failure =
      bad_file(index_path,
               fmt::format("weight_map: there is no file {}", missing.front()) +
                   (missing.size() == 1 ? "" : fmt::format(", nor {} others of {}", missing.size() - 1, named.size())));
  for (const std::string& name : env.list_directory(directory_name(index_path))) {
    if (!name.ends_with(".safetensors") || named.contains(name)) continue;
    failure.nearest = fmt::format("bring it here, or the index's name for it is wrong: it does not name {}", name);
    break;
  }
  return failure;
}

}  // namespace

// The index and the files must say the same: each tensor in the file that the index names, and no others.
Status SafetensorsReader::add_indexed_files(Env& env, const std::string& index_path) {
  const std::string text = env.read_file(index_path);
  const Result<Json> document = parse_json(text, index_path);
  if (!document.ok()) {
    const std::optional<FileFormat> other = recognise_format(std::as_bytes(std::span(text)));
    if (other && !text.starts_with('{')) return another_format(index_path, *other, "an index");
    return bad_file(document.failure().option, document.failure().rule);
  }
  const Json* map = document->find("weight_map");
  if (map == nullptr || !map->is_object()) return bad_file(index_path, "weight_map must be an object");
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->as_object()) {
    const bool plain = file.is_string() && !file.as_string().empty() && file.as_string().find('/') == std::string::npos;
    if (!plain)
      return bad_file(index_path, fmt::format("weight_map: \"{}\" must name a file beside the index", tensor));
    names.insert(file.as_string());
  }
  std::vector<std::string> paths, missing;
  for (const std::string& name : names) {
    paths.push_back(join_path(directory_name(index_path), name));
    if (!env.exists(paths.back())) missing.push_back(paths.back());
  }
  if (!missing.empty()) return missing_shards(env, index_path, missing, names);
  for (const std::string& path : paths) {
    if (Status added = add_file(env, path); !added.ok()) return added;
  }
  for (const auto& [tensor, file] : map->as_object()) {
    const StoredTensor* stored = find(tensor);
    if (stored == nullptr || base_name(paths_[stored->file]) != file.as_string()) {
      return bad_file(index_path, fmt::format("weight_map: tensor \"{}\" is not in {}", tensor, file.as_string()));
    }
  }
  if (map->as_object().size() == tensors_.size()) return ok_status();
  for (const StoredTensor& tensor : tensors_) {
    if (map->find(tensor.name) != nullptr) continue;
    return bad_file(index_path,
                    fmt::format("weight_map does not list tensor \"{}\" of {}", tensor.name, paths_[tensor.file]));
  }
  return ok_status();
}

const StoredTensor* SafetensorsReader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const StoredTensor& SafetensorsReader::get(std::string_view name, std::string_view operation) const {
  if (const StoredTensor* tensor = find(name)) return *tensor;
  std::vector<std::string> known;
  for (const StoredTensor& tensor : tensors_) known.push_back(tensor.name);
  const std::string nearest = nearest_word(name, known);
  throw Error(ExitCode::kUsage, "checkpoint", fmt::format("{} \"{}\"", operation, name),
              fmt::format("{} has no such tensor", paths_.empty() ? "the file" : paths_.front()),
              nearest.empty() ? "" : fmt::format("the nearest name is \"{}\"", nearest));
}

void SafetensorsReader::read_slice(std::string_view name, std::span<const std::int64_t> begin,
                                   std::span<const std::int64_t> extent, std::span<float> out) const {
  const StoredTensor& tensor = get(name, "read a slice of");
  const auto refuse = [&](const std::string& reason) {
    throw Error(ExitCode::kUsage, "checkpoint", fmt::format("read a slice of \"{}\"", name), reason);
  };
  if (!tensor.dtype || !converts_to_f32(*tensor.dtype)) {
    refuse(fmt::format("{} is not read as float32; F32, BF16 and F16 are", tensor.type));
  }
  bool inside = begin.size() == tensor.shape.size() && extent.size() == tensor.shape.size();
  for (std::size_t d = 0; inside && d < tensor.shape.size(); ++d) {
    inside = begin[d] >= 0 && extent[d] >= 0 && begin[d] <= tensor.shape[d] && extent[d] <= tensor.shape[d] - begin[d];
  }
  if (!inside) {
    refuse(fmt::format("{} from {} is not inside the shape {}", shape_text(extent), shape_text(begin),
                       shape_text(tensor.shape)));
  }
  TRIREME_CHECK_EQ(static_cast<std::int64_t>(out.size()), *product_of(extent, 1));
  if (out.empty()) return;
  const Runs runs(tensor, begin, extent, dtype_size(*tensor.dtype));
  RunReader(*readers_[tensor.file], tensor, runs, out).read();
}

void SafetensorsReader::read_rows(std::string_view name, std::int64_t first, std::int64_t count,
                                  std::span<float> out) const {
  const StoredTensor& tensor = get(name, "read rows of");
  std::vector<std::int64_t> begin(tensor.shape.size(), 0);
  std::vector<std::int64_t> extent = tensor.shape;
  if (extent.empty()) {
    throw Error(ExitCode::kUsage, "checkpoint", fmt::format("read rows of \"{}\"", name), "it is a scalar");
  }
  begin[0] = first;
  extent[0] = count;
  read_slice(name, begin, extent, out);
}

void SafetensorsReader::read_all(std::string_view name, std::span<float> out) const {
  const StoredTensor& tensor = get(name, "read");
  read_slice(name, std::vector<std::int64_t>(tensor.shape.size(), 0), tensor.shape, out);
}

void SafetensorsReader::read_raw(std::string_view name, std::int64_t offset, std::span<std::byte> out) const {
  const StoredTensor& tensor = get(name, "read bytes of");
  const auto size = static_cast<std::int64_t>(out.size());
  if (offset < 0 || offset > tensor.bytes() || size > tensor.bytes() - offset) {
    throw Error(ExitCode::kUsage, "checkpoint", fmt::format("read bytes of \"{}\"", name),
                fmt::format("{} bytes from {} are not inside its {}", size, offset, tensor.bytes()));
  }
  if (!out.empty()) readers_[tensor.file]->read_at(tensor.begin + offset, out);
}

}  // namespace trireme::checkpoint
