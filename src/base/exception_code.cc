#include "base/exception_code.h"

#include "base/error.h"
#include "base/limit_failure.h"

namespace trireme {

ExitCode code_of(const std::exception& error) {
  if (const auto* known = dynamic_cast<const Error*>(&error)) return known->code();
  return limit_failure(error).empty() ? ExitCode::kInternal : ExitCode::kDoesNotFit;
}

}  // namespace trireme
