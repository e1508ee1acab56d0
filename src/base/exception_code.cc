#include "base/exception_code.h"

#include <new>
#include <system_error>

#include "base/error.h"

namespace trireme {

ExitCode code_of(const std::exception& error) {
  if (const auto* known = dynamic_cast<const Error*>(&error)) return known->code();
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return ExitCode::kDoesNotFit;
  const auto* refused = dynamic_cast<const std::system_error*>(&error);
  if (refused == nullptr) return ExitCode::kInternal;
  const bool no_room =
      refused->code() == std::errc::resource_unavailable_try_again || refused->code() == std::errc::not_enough_memory;
  return no_room ? ExitCode::kDoesNotFit : ExitCode::kInternal;
}

}  // namespace trireme
