#include "base/error.h"

#include <cctype>
#include <string_view>

namespace trireme {
namespace {

// Values are words without blanks ("2, 4", "tensor, none") or start with a digit ("80 GB"); anything else is
// advice.
bool is_list_of_values(std::string_view text) {
  if (std::isdigit(static_cast<unsigned char>(text.front())) != 0) return true;
  return text.substr(0, text.find(',')).find(' ') == std::string_view::npos;
}

std::string join_parts(const std::string& component, const std::string& operation, const std::string& message) {
  std::string text = component;
  if (!operation.empty()) text += (text.empty() ? "" : ": ") + operation;
  if (!message.empty()) text += (text.empty() ? "" : ": ") + message;
  return text;
}

}  // namespace

std::string Failure::sentence() const {
  std::string text = option;
  if (!value.empty()) text += (text.empty() ? "" : " = ") + value;
  if (!rule.empty()) text += (text.empty() ? "" : ": ") + rule;
  if (nearest.empty()) return text;
  text += text.empty() ? "" : "; ";
  if (is_list_of_values(nearest)) text += "nearest legal: ";
  return text + nearest;
}

Error::Error(ExitCode code, std::string component, std::string operation, std::string message, std::string hint)
    : std::runtime_error(join_parts(component, operation, message)),
      code_(code),
      component_(std::move(component)),
      hint_(std::move(hint)) {}

Error::Error(const Failure& failure) : std::runtime_error(failure.sentence()), code_(failure.code) {}

}  // namespace trireme
