// What went wrong, for a person: what, where, what was expected, what was found, and what to do.
#pragma once

#include <stdexcept>
#include <string>

namespace tileway {

enum class ErrorKind {
  invalid,   // an argument, a file or a program is wrong; nothing has run
  mismatch,  // ranks disagree; every rank of the group throws the same text; nothing has run
  lost,      // a rank died, failed or did not answer before the deadline
  refused,   // a plan cannot be proven safe; nothing has run
  system,    // the machine refused something (memory, sockets, a missing library)
};

// The parts of a message. Only `where` and `what` are required.
struct ErrorText {
  std::string where{};     // the operation, tensor, file or rank concerned
  std::string what{};      // one clause, no full stop
  std::string expected{};  // the rule that was broken, or the value wanted
  std::string got{};
  std::string hint{};  // what to do about it
};

// An Error is for what a user or a machine did. A broken assertion (TW_ASSERT) is our own bug.
// what() reads "[tileway] where: what; expected E, got G. Hint."
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const ErrorText& text);
  // Carries a message that another rank composed, word for word.
  static Error quoted(ErrorKind kind, const std::string& message);

  ErrorKind kind() const { return kind_; }
  // 2 for invalid and mismatch, 1 for lost and system: the exit status of the command.
  int exit_status() const;

 private:
  Error(ErrorKind kind, const std::string& message, int) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind_;
};

[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

}  // namespace tileway

// Unreachable by any input: a failure is a bug of ours. Always on.
#define TW_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::tileway::assertion_failed(#condition, __FILE__, __LINE__))

// Throws Error(kind, ErrorText{...}) unless the condition holds; the text is built only then.
#define TW_REQUIRE(condition, kind, ...) \
  ((condition) ? static_cast<void>(0) : throw ::tileway::Error((kind), ::tileway::ErrorText{__VA_ARGS__}))
