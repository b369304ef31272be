#include "tileway/error.hpp"

#include <cstdio>
#include <cstdlib>

namespace tileway {
namespace {

std::string compose(const ErrorText& text) {
  std::string message = "[tileway] " + text.where + ": " + text.what;
  if (!text.expected.empty()) message += "; expected " + text.expected;
  if (!text.got.empty()) message += (text.expected.empty() ? "; got " : ", got ") + text.got;
  message += ".";
  if (!text.hint.empty()) message += " " + text.hint + ".";
  return message;
}

}  // namespace

Error::Error(ErrorKind kind, const ErrorText& text) : Error(kind, compose(text), 0) {}

Error Error::quoted(ErrorKind kind, const std::string& message) { return Error(kind, message, 0); }

int Error::exit_status() const { return kind_ == ErrorKind::invalid || kind_ == ErrorKind::mismatch ? 2 : 1; }

void assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "[tileway] a bug in tileway: %s does not hold at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace tileway
