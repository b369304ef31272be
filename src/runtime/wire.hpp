// Messages over a Unix stream socket: a length, then bytes, with at most one file descriptor beside the length.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/file_descriptor.hpp"

namespace tileway::wire {

struct Message {
  std::string bytes;
  FileDescriptor file;
};

// False when the other side is gone.
bool send(int socket, std::string_view bytes, int file = -1);
// Empty when the other side is gone or sent something that is not a message (over 64 MiB).
std::optional<Message> receive(int socket);

// Fields one after the other; reading past the end throws Error (invalid).
class Writer {
 public:
  Writer& number(std::int64_t value);
  Writer& text(std::string_view value);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  std::int64_t number();
  std::string text();

 private:
  std::string_view take(std::size_t count);
  std::string_view bytes_;
};

}  // namespace tileway::wire
