#pragma once

// Three kinds of failure, three mechanisms:
//   * an expected outcome is a value: Result<T> holds a T or a Failure (asked, rule, nearest legal);
//   * what ends a step or a command is an exception: Error, caught in one place (cli main, the worker);
//   * a broken invariant is a CHECK (check.h), which throws InternalError, on in release.
// An error knows no rank: whoever catches it adds that.

#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "base/exit_code.h"

namespace trireme {

// A refusal, in the four parts that its reader needs. Empty parts are left out of the sentence.
struct Failure {
  std::string option;   // the option or file that was wrong, e.g. "layout.tp"
  std::string value;    // its value as given
  std::string rule;     // the rule that it broke, a sentence without a final stop
  std::string nearest;  // the nearest legal values, or what to do instead
  ExitCode code = ExitCode::kUsage;

  // "layout.tp = 3: heads (8) must be divisible by tp; nearest legal: 2, 4". A `nearest` that is advice
  // rather than values (its first item holds a blank and starts with no digit) follows the semicolon as it
  // stands.
  std::string sentence() const;
};

// Ends a step or a command.
class Error : public std::runtime_error {
 public:
  // component: the folder that speaks ("data", "checkpoint"); operation: what it was doing; message: what
  // went wrong; hint: what the user can do (may be empty). what() is "component: operation: message"; whoever
  // prints it adds the hint.
  Error(ExitCode code, std::string component, std::string operation, std::string message, std::string hint = "");
  explicit Error(const Failure& failure);

  ExitCode code() const { return code_; }
  const std::string& component() const { return component_; }
  const std::string& hint() const { return hint_; }

 private:
  ExitCode code_;
  std::string component_;
  std::string hint_;
};

// Thrown by CHECK. Never caught to go on.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// A value or a failure. Reading the wrong side is an InternalError.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}            // NOLINT(google-explicit-constructor)
  Result(Failure failure) : state_(std::move(failure)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }

  const T& value() const& { return get<T>("value"); }
  T&& value() && { return std::move(const_cast<T&>(get<T>("value"))); }
  const Failure& failure() const { return get<Failure>("failure"); }

  const T* operator->() const { return &value(); }
  const T& operator*() const& { return value(); }

  // The value, or throws the failure as an Error: for callers that have nothing better to do with it.
  T or_throw() && {
    if (!ok()) throw Error(failure());
    return std::move(*this).value();
  }

 private:
  template <class Side>
  const Side& get(const char* asked) const {
    if (const Side* side = std::get_if<Side>(&state_)) return *side;
    throw InternalError(std::string("Result: read the ") + asked + " of the other side" +
                        (ok() ? "" : ": " + std::get<Failure>(state_).sentence()));
  }
  std::variant<T, Failure> state_;
};

struct Unit {};
using Status = Result<Unit>;
inline Status ok_status() { return Unit{}; }

}  // namespace trireme
