#include "checkpoint/manifest.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/units.h"
#include "checkpoint/checksum.h"

namespace trireme::checkpoint {
namespace {

constexpr std::string_view kFormatName = "trireme-checkpoint";
constexpr std::string_view kChecksumBefore = "  \"checksum\": \"";
constexpr std::string_view kChecksumAfter = "\"\n}\n";
constexpr std::size_t kChecksumDigits = 32;
constexpr std::size_t kEndBytes = kChecksumBefore.size() + kChecksumDigits + kChecksumAfter.size();

bool is_checksum(std::string_view text) {
  return text.size() == kChecksumDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string quoted(std::string_view text) { return Json(text).dump(); }

// A member of the manifest on lines of its own.
void add_member(std::string& out, std::string_view key, const Json& value) {
  out += fmt::format("  {}: ", quoted(key));
  for (const char c : value.dump(2)) {
    out += c;
    if (c == '\n') out += "  ";
  }
  out += ",\n";
}

// Items on lines of their own, a comma after each but the last.
template <class Items, class Write>
void add_list(std::string& out, std::string_view indent, const Items& items, const Write& write) {
  out += '[';
  for (std::size_t i = 0; i < items.size(); ++i) {
    out += i > 0 ? ",\n" : "\n";
    out += indent;
    out += "  ";
    write(items[i]);
  }
  if (!items.empty()) {
    out += '\n';
    out += indent;
  }
  out += ']';
}

void add_file(std::string& out, const StoredFile& file) {
  out += fmt::format("{{\"name\": {}, \"bytes\": {}, \"header_checksum\": {}}}", quoted(file.name), file.bytes,
                     quoted(file.header_checksum));
}

void add_model_file(std::string& out, const StoredModelFile& file) {
  out += fmt::format("{{\"name\": {}, \"bytes\": {}, \"checksum\": {}}}", quoted(file.name), file.bytes,
                     quoted(file.checksum));
}

void add_tensor(std::string& out, const StoredState& tensor) {
  out += fmt::format("{{\"name\": {}, \"kind\": \"{}\", \"dtype\": \"{}\", \"shape\": [", quoted(tensor.name),
                     plan::state_kind_name(tensor.kind), dtype_name(tensor.dtype));
  for (std::size_t d = 0; d < tensor.shape.size(); ++d) out += fmt::format("{}{}", d > 0 ? ", " : "", tensor.shape[d]);
  out += "], \"slices\": ";
  add_list(out, "    ", tensor.slices, [&](const Slice& slice) {
    const auto [rows, columns] = slice.box;
    out += fmt::format("[{}, [{}, {}", slice.file, rows.begin, rows.end);
    if (tensor.shape.size() > 1) out += fmt::format(", {}, {}", columns.begin, columns.end);
    out += fmt::format("], {}]", quoted(slice.checksum));
  });
  out += '}';
}

// What keeps slices from covering their tensor exactly; nothing if they do. Their boxes lie inside it, none empty. A
// sweep over the rows: the slices that a row crosses must lie side by side, from the first column to the last.
std::optional<std::string> cover_fault(const StoredState& tensor) {
  struct Edge {
    std::int64_t row;
    bool begins;  // else ends; ends come first
    const Slice* slice;
  };
  std::vector<Edge> edges;
  edges.reserve(2 * tensor.slices.size());
  for (const Slice& slice : tensor.slices) {
    edges.push_back({slice.box.rows.begin, true, &slice});
    edges.push_back({slice.box.rows.end, false, &slice});
  }
  std::sort(edges.begin(), edges.end(),
            [](const Edge& a, const Edge& b) { return std::pair(a.row, a.begins) < std::pair(b.row, b.begins); });

  std::map<std::int64_t, const Slice*> crossing;  // by first column
  std::int64_t covered = 0;                       // columns
  const auto overlapping = [&](const plan::Interval& columns) -> const Slice* {
    const auto after = crossing.lower_bound(columns.begin);
    if (after != crossing.end() && after->first < columns.end) return after->second;
    if (after == crossing.begin()) return nullptr;
    const Slice* before = std::prev(after)->second;
    return before->box.columns.end > columns.begin ? before : nullptr;
  };
  std::size_t next = 0;
  for (std::int64_t row = 0; row < tensor.rows(); row = next < edges.size() ? edges[next].row : tensor.rows()) {
    for (; next < edges.size() && edges[next].row == row; ++next) {
      const Slice& slice = *edges[next].slice;
      const plan::Interval columns = slice.box.columns;
      covered += edges[next].begins ? columns.length() : -columns.length();
      if (!edges[next].begins) {
        crossing.erase(columns.begin);
      } else if (const Slice* other = overlapping(columns)) {
        return fmt::format("slices {} and {} overlap", slice_key(tensor, other->box), slice_key(tensor, slice.box));
      } else {
        crossing.emplace(columns.begin, &slice);
      }
    }
    if (covered == tensor.columns()) continue;
    std::int64_t column = 0;
    for (const auto& [begin, slice] : crossing) {
      if (begin > column) break;
      column = slice->box.columns.end;
    }
    return fmt::format("no slice holds row {}, column {}", row, column);
  }
  return std::nullopt;
}

// Reads the members of a manifest. The first thing that is wrong is kept; what follows it reads as zeros.
class Parser {
 public:
  explicit Parser(const std::string& path) : path_(path) {}

  const std::optional<Failure>& failure() const { return failure_; }

  Manifest read(const Json& root) {
    Manifest manifest;
    if (!check_version(root)) return manifest;
    read_progress(member(root, "progress", "object"), manifest.progress);
    manifest.reason = text(root, "reason");
    manifest.saved_at = text(root, "saved_at");
    manifest.program = text(root, "program");
    manifest.layout = text(root, "layout");
    manifest.model = member(root, "model", "object");
    if (version_ >= kModelFilesVersion) {
      for (const Json& file : member(root, "model_files", "list").as_array()) read_model_file(file, manifest);
    }
    manifest.run = member(root, "run", "object");
    manifest.data = member(root, "data", "object");
    manifest.scaler = member(root, "scaler", "");
    for (const Json& file : member(root, "files", "list").as_array()) read_file(file, manifest.files);
    room_.reserve(manifest.files.size());
    for (const StoredFile& file : manifest.files) room_.push_back(file.bytes);
    for (const Json& tensor : member(root, "tensors", "list").as_array()) {
      if (failure_) break;
      manifest.tensors.push_back(read_tensor(tensor));
    }
    return manifest;
  }

 private:
  void refuse(std::string rule) {
    if (!failure_) failure_ = Failure{path_, "", where_ + std::move(rule), "", ExitCode::kStorage};
  }

  bool check_version(const Json& root) {
    const Json* format = root.find("format");
    if (format == nullptr || *format != Json(kFormatName)) {
      refuse(fmt::format("not a checkpoint's manifest: \"format\" must be \"{}\"", kFormatName));
      return false;
    }
    version_ = integer(root, "version", 1);
    if (!failure_ && (version_ < kFirstVersion || version_ > kLastVersion)) {
      refuse(fmt::format("version {} of the format; this program reads versions {} to {}", version_, kFirstVersion,
                         kLastVersion));
    }
    return !failure_;
  }

  // A stand-in of the type asked for where it is absent or of another; type "": any.
  const Json& member(const Json& object, std::string_view key, std::string_view type) {
    static const Json kNone[] = {Json::object(), Json::array(), Json(0), Json("")};
    const Json* found = object.find(key);
    if (found != nullptr && (type.empty() || found->type_name() == type)) return *found;
    refuse(found == nullptr ? fmt::format("\"{}\" is missing", key)
                            : fmt::format("\"{}\" is of type {}, must be {}", key, found->type_name(), type));
    const auto* none =
        std::find_if(std::begin(kNone), std::end(kNone), [&](const Json& json) { return json.type_name() == type; });
    return none != std::end(kNone) ? *none : kNone[0];
  }
  const std::string& text(const Json& object, std::string_view key) { return member(object, key, "text").as_string(); }
  std::int64_t integer(const Json& object, std::string_view key, std::int64_t least) {
    const std::int64_t value = member(object, key, "integer").as_integer();
    if (value < least) refuse(fmt::format("\"{}\" is {}, must be at least {}", key, value, least));
    return value;
  }
  std::string checksum(const Json& value, std::string_view what) {
    if (value.is_string() && is_checksum(value.as_string())) return value.as_string();
    refuse(fmt::format("{} must be a checksum of {} hexadecimal digits", what, kChecksumDigits));
    return {};
  }

  void read_progress(const Json& object, Progress& progress) {
    progress.step = integer(object, "step", 0);
    progress.samples = integer(object, "samples", 0);
    progress.tokens = integer(object, "tokens", 0);
    progress.incarnation = integer(object, "incarnation", 0);
    progress.failures = integer(object, "failures", 0);
    const Json& elapsed = member(object, "elapsed_s", "number");
    progress.elapsed_s = elapsed.is_number() ? elapsed.as_number() : 0.0;
    if (progress.elapsed_s < 0.0) refuse("\"elapsed_s\" is negative");
    if (object.find("loss_scale") == nullptr) return;
    const Json& scale = member(object, "loss_scale", "number");
    progress.loss_scale = scale.is_number() ? scale.as_number() : 0.0;
    if (progress.loss_scale < 1.0) refuse("\"loss_scale\" is below 1");
    progress.good_steps = integer(object, "good_steps", 0);
  }

  std::string file_name(const Json& object) {
    const std::string& name = text(object, "name");
    const bool plain = !name.empty() && name.find('/') == std::string::npos && name.find('\0') == std::string::npos &&
                       name != "." && name != ".." && name != kManifestFile;
    if (!plain) refuse(fmt::format("{} must be the name of a file inside the directory", quoted(name)));
    if (!file_names_.insert(name).second) refuse(fmt::format("{} is named twice", quoted(name)));
    return name;
  }

  void read_model_file(const Json& object, Manifest& manifest) {
    where_ = fmt::format("model_files[{}]: ", manifest.model_files.size());
    StoredModelFile file;
    file.name = file_name(object);
    file.bytes = integer(object, "bytes", 0);
    file.checksum = checksum(member(object, "checksum", "text"), "\"checksum\"");
    manifest.model_files.push_back(std::move(file));
    where_.clear();
  }

  void read_file(const Json& object, std::vector<StoredFile>& files) {
    where_ = fmt::format("files[{}]: ", files.size());
    StoredFile file;
    file.name = file_name(object);
    file.bytes = integer(object, "bytes", 8);  // the length of its header
    if (__builtin_add_overflow(total_bytes_, file.bytes, &total_bytes_)) refuse("the sizes sum to more than 2^63");
    file.header_checksum = checksum(member(object, "header_checksum", "text"), "\"header_checksum\"");
    files.push_back(std::move(file));
    where_.clear();
  }

  StoredState read_tensor(const Json& object) {
    StoredState tensor;
    tensor.name = text(object, "name");
    const std::string& kind = text(object, "kind");
    where_ = fmt::format("tensor {}/{}: ", kind, tensor.name);
    const auto* known = std::find_if(std::begin(plan::kStateKinds), std::end(plan::kStateKinds),
                                     [&](plan::StateKind k) { return plan::state_kind_name(k) == kind; });
    if (known == std::end(plan::kStateKinds)) {
      refuse("its kind is none of: weight, exp_avg, exp_avg_sq");
    } else {
      tensor.kind = *known;
    }
    if (tensor.name.empty()) refuse("it has no name");
    if (!tensor_names_.emplace(tensor.kind, tensor.name).second) refuse("it is listed twice");
    const Result<DType> dtype = parse_dtype(text(object, "dtype"));
    if (dtype.ok()) {
      tensor.dtype = *dtype;
    } else {
      refuse(dtype.failure().sentence());
    }
    read_shape(member(object, "shape", "list").as_array(), tensor);
    if (!failure_) read_slices(member(object, "slices", "list").as_array(), tensor);
    if (failure_) return tensor;
    if (const auto fault = cover_fault(tensor)) refuse(*fault);
    where_.clear();
    return tensor;
  }

  void read_shape(const Json::Array& sizes, StoredState& tensor) {
    std::int64_t bytes = dtype_size(tensor.dtype);
    bool legal = sizes.size() == 1 || sizes.size() == 2;
    for (const Json& size : sizes) {
      legal = legal && size.is_integer() && size.as_integer() > 0 &&
              !__builtin_mul_overflow(bytes, size.as_integer(), &bytes);
      if (legal) tensor.shape.push_back(size.as_integer());
    }
    if (!legal) refuse("its shape must be one or two sizes above 0, below 2^63 bytes in all");
  }

  void read_slices(const Json::Array& slices, StoredState& tensor) {
    for (const Json& item : slices) {
      const auto number = tensor.slices.size();
      if (!item.is_array() || item.as_array().size() != 3) {
        return refuse(fmt::format("slice {} must be [file, [rows, columns], \"checksum\"]", number));
      }
      const Json::Array& parts = item.as_array();
      Slice slice;
      const std::optional<std::int64_t> file = index_below(parts[0], static_cast<std::int64_t>(room_.size()));
      if (!file) return refuse(fmt::format("slice {}: its file must be one of the {} listed", number, room_.size()));
      slice.file = static_cast<int>(*file);
      const std::optional<plan::TensorBox> box = box_in(parts[1], tensor);
      if (!box) return refuse(fmt::format("slice {}: its box is not a part of the tensor", number));
      slice.box = *box;
      slice.checksum = checksum(parts[2], fmt::format("slice {}: its last item", number));
      std::int64_t& room = room_[static_cast<std::size_t>(slice.file)];
      room -= slice.box.elements() * dtype_size(tensor.dtype);
      if (room < 0) return refuse(fmt::format("slice {}: file {} is too small for its slices", number, slice.file));
      tensor.slices.push_back(std::move(slice));
    }
  }

  static std::optional<std::int64_t> index_below(const Json& value, std::int64_t count) {
    if (!value.is_integer() || value.as_integer() < 0 || value.as_integer() >= count) return std::nullopt;
    return value.as_integer();
  }

  // [first row, end of rows] of a vector, [..., first column, end of columns] of a matrix; not empty.
  static std::optional<plan::TensorBox> box_in(const Json& value, const StoredState& tensor) {
    if (!value.is_array() || value.as_array().size() != 2 * tensor.shape.size()) return std::nullopt;
    plan::TensorBox box{{0, 0}, {0, 1}};
    for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
      const auto begin = index_below(value.as_array()[2 * d], tensor.shape[d]);
      const auto end = index_below(value.as_array()[2 * d + 1], tensor.shape[d] + 1);
      if (!begin || !end || *begin >= *end) return std::nullopt;
      (d == 0 ? box.rows : box.columns) = {*begin, *end};
    }
    return box;
  }

  const std::string& path_;
  std::int64_t version_ = 0;
  std::string where_;  // in the manifest; begins a refusal
  std::optional<Failure> failure_;
  std::set<std::string> file_names_;
  std::set<std::pair<plan::StateKind, std::string>> tensor_names_;
  std::int64_t total_bytes_ = 0;
  std::vector<std::int64_t> room_;  // bytes of each file that no slice has taken
};

}  // namespace

Json to_json(const Progress& progress) {
  Json json = Json::object({{"step", progress.step},
                            {"samples", progress.samples},
                            {"tokens", progress.tokens},
                            {"incarnation", progress.incarnation},
                            {"failures", progress.failures},
                            {"elapsed_s", progress.elapsed_s}});
  if (progress.loss_scale > 0) {
    json["loss_scale"] = progress.loss_scale;
    json["good_steps"] = progress.good_steps;
  }
  return json;
}

const StoredState* Manifest::find(std::string_view name, plan::StateKind kind) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const StoredState& t) { return t.kind == kind && t.name == name; });
  return found != tensors.end() ? &*found : nullptr;
}

std::int64_t Manifest::bytes() const {
  std::int64_t sum = 0;
  for (const StoredFile& file : files) sum = checked_add(sum, file.bytes);
  return sum;
}

std::string slice_key(const StoredState& tensor, const plan::TensorBox& box) {
  const std::string rows =
      fmt::format("{}/{}/{}:{}", plan::state_kind_name(tensor.kind), tensor.name, box.rows.begin, box.rows.end);
  return tensor.shape.size() > 1 ? fmt::format("{},{}:{}", rows, box.columns.begin, box.columns.end) : rows;
}

std::string to_text(const Manifest& manifest) {
  std::string out = "{\n";
  add_member(out, "format", kFormatName);
  add_member(out, "version", manifest.version());
  add_member(out, "progress", to_json(manifest.progress));
  add_member(out, "reason", manifest.reason);
  add_member(out, "saved_at", manifest.saved_at);
  add_member(out, "program", manifest.program);
  add_member(out, "layout", manifest.layout);
  add_member(out, "model", manifest.model);
  if (!manifest.model_files.empty()) {
    out += "  \"model_files\": ";
    add_list(out, "  ", manifest.model_files, [&](const StoredModelFile& file) { add_model_file(out, file); });
    out += ",\n";
  }
  add_member(out, "run", manifest.run);
  add_member(out, "data", manifest.data);
  add_member(out, "scaler", manifest.scaler);
  out += "  \"files\": ";
  add_list(out, "  ", manifest.files, [&](const StoredFile& file) { add_file(out, file); });
  out += ",\n  \"tensors\": ";
  add_list(out, "  ", manifest.tensors, [&](const StoredState& tensor) { add_tensor(out, tensor); });
  out += ",\n";
  const std::string checksum = checksum_of(out);
  return fmt::format("{}{}{}{}", out, kChecksumBefore, checksum, kChecksumAfter);
}

Result<Manifest> parse_manifest(std::string_view text, const std::string& path) {
  const auto refuse = [&](std::string rule) { return Failure{path, "", std::move(rule), "", ExitCode::kStorage}; };
  const std::string_view end = text.size() < kEndBytes ? std::string_view() : text.substr(text.size() - kEndBytes);
  if (!end.starts_with(kChecksumBefore) || !end.ends_with(kChecksumAfter)) {
    return refuse("does not end with the line of its checksum: cut short, changed, or no manifest");
  }
  const std::string_view expected = end.substr(kChecksumBefore.size(), kChecksumDigits);
  const std::string found = checksum_of(text.substr(0, text.size() - kEndBytes));
  if (found != expected) return refuse(fmt::format("checksum: expected {}, found {}", expected, found));

  const Result<Json> root = parse_json(text, path);
  if (!root.ok()) return refuse(root.failure().rule);
  Parser parser(path);
  Manifest manifest = parser.read(*root);
  if (parser.failure()) return *parser.failure();
  const std::string canonical = to_text(manifest);
  if (canonical == text) return manifest;
  const auto differing = std::mismatch(text.begin(), text.end(), canonical.begin(), canonical.end()).first;
  return refuse(fmt::format("line {} is not in the form that version {} writes",
                            1 + std::count(text.begin(), differing, '\n'), manifest.version()));
}

std::vector<StoredState> states_of(const model::ParameterTable& table) {
  std::vector<StoredState> states;
  for (const plan::StateKind kind : plan::kStateKinds) {
    for (const model::Parameter& parameter : table.parameters) {
      states.push_back({parameter.name, kind, parameter.shape, DType::kF32, {}});
    }
  }
  return states;
}

}  // namespace trireme::checkpoint
