#include "runtime/wire.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "tileway/error.hpp"

namespace tileway::wire {
namespace {

constexpr std::uint64_t kLongest = 64U << 20;

bool send_all(int socket, const char* data, std::size_t count) {
  while (count > 0) {
    const ssize_t sent = ::send(socket, data, count, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    count -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, char* data, std::size_t count) {
  while (count > 0) {
    const ssize_t got = ::recv(socket, data, count, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    data += got;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

// Room for the control message that carries one descriptor.
union Control {
  cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
};

}  // namespace

bool send(int socket, std::string_view bytes, int file) {
  std::uint64_t length = bytes.size();
  iovec part{.iov_base = &length, .iov_len = sizeof(length)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control{};
  if (file >= 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof(control.bytes);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof(int));
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != sizeof(length)) return false;
  return send_all(socket, bytes.data(), bytes.size());
}

std::optional<Message> receive(int socket) {
  std::uint64_t length = 0;
  iovec part{.iov_base = &length, .iov_len = sizeof(length)};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Control control{};
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  ssize_t got = 0;
  do {
    got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return std::nullopt;
  Message out;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int file = -1;
    std::memcpy(&file, CMSG_DATA(header), sizeof(int));
    out.file = FileDescriptor(file);
  }
  const auto first = static_cast<std::size_t>(got);
  if (!receive_all(socket, reinterpret_cast<char*>(&length) + first, sizeof(length) - first)) return std::nullopt;
  if (length > kLongest) return std::nullopt;
  out.bytes.resize(length);
  if (!receive_all(socket, out.bytes.data(), out.bytes.size())) return std::nullopt;
  return out;
}

Writer& Writer::number(std::int64_t value) {
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  return *this;
}

Writer& Writer::text(std::string_view value) {
  number(static_cast<std::int64_t>(value.size()));
  bytes_.append(value);
  return *this;
}

std::string_view Reader::take(std::size_t count) {
  TW_REQUIRE(count <= bytes_.size(), ErrorKind::invalid, .where = "message between ranks", .what = "it ends too early");
  const std::string_view taken = bytes_.substr(0, count);
  bytes_.remove_prefix(count);
  return taken;
}

std::int64_t Reader::number() {
  std::int64_t value = 0;
  std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
  return value;
}

std::string Reader::text() { return std::string(take(static_cast<std::size_t>(number()))); }

}  // namespace tileway::wire
