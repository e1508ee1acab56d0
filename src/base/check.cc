#include "base/check.h"

#include "base/error.h"

namespace trireme::detail {

void check_failed(std::string_view expression, const std::string& operands, const std::string& message,
                  std::source_location where) {
  std::string text = fmt::format("{}:{}: check failed: {}", where.file_name(), where.line(), expression);
  if (!operands.empty()) text += fmt::format(" ({})", operands);
  if (!message.empty()) text += fmt::format(": {}", message);
  throw InternalError(text);
}

}  // namespace trireme::detail
