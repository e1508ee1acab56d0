#include "base/dtype.h"

#include <array>
#include <string>

#include "base/check.h"

namespace trireme {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  std::int64_t size;
};

constexpr std::array<Entry, 6> kEntries{{{DType::kF32, "F32", 4},
                                         {DType::kF64, "F64", 8},
                                         {DType::kBF16, "BF16", 2},
                                         {DType::kF16, "F16", 2},
                                         {DType::kI32, "I32", 4},
                                         {DType::kI64, "I64", 8}}};

const Entry& entry_of(DType dtype) {
  for (const Entry& entry : kEntries) {
    if (entry.dtype == dtype) return entry;
  }
  detail::check_failed("known dtype", std::to_string(static_cast<int>(dtype)), "");
}

}  // namespace

std::int64_t dtype_size(DType dtype) { return entry_of(dtype).size; }

std::string_view dtype_name(DType dtype) { return entry_of(dtype).name; }

Result<DType> parse_dtype(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.dtype;
  }
  return Failure{"dtype", std::string(name), "is not an element type that this program reads",
                 "F32, F64, BF16, F16, I32, I64"};
}

}  // namespace trireme
