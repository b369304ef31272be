#include "runtime/server.hpp"

#include <poll.h>
#include <sys/socket.h>

#include "runtime/wire.hpp"
#include "tileway/error.hpp"

namespace tileway {
namespace {

// Requests begin with one of these; replies with whether it worked.
constexpr std::int64_t kMeet = 1;
constexpr std::int64_t kGoodbye = 2;
constexpr std::int64_t kMet = 0;
constexpr std::int64_t kRefused = 1;
constexpr std::int64_t kMaxMembers = 4096;

// A peer that has closed its side; nothing is read.
bool hung_up(int socket) {
  pollfd poll_one{.fd = socket, .events = POLLRDHUP, .revents = 0};
  return poll(&poll_one, 1, 0) > 0 && (poll_one.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

std::string encode(const Meeting& meeting, const Piece& own) {
  wire::Writer out;
  out.number(kMeet).text(meeting.key).text(meeting.what).number(meeting.deadline.count()).number(meeting.self);
  out.number(static_cast<std::int64_t>(meeting.members.size()));
  for (int member : meeting.members) out.number(member);
  return out.text(own.value).bytes();
}

Meeting decode(wire::Reader& in, int ranks_at_most) {
  Meeting meeting;
  meeting.key = in.text();
  meeting.what = in.text();
  meeting.deadline = std::chrono::milliseconds(in.number());
  meeting.self = static_cast<int>(in.number());
  const std::int64_t members = in.number();
  TW_REQUIRE(members > 0 && members <= ranks_at_most && meeting.self >= 0 && meeting.self < members, ErrorKind::invalid,
             .where = "message between ranks", .what = "an impossible meeting");
  for (std::int64_t m = 0; m < members; ++m) meeting.members.push_back(static_cast<int>(in.number()));
  return meeting;
}

}  // namespace

MeetingServer::~MeetingServer() {
  closing_ = true;
  {
    const std::lock_guard lock(mutex_);
    for (const FileDescriptor& socket : sockets_) shutdown(socket.get(), SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
}

void MeetingServer::add(int rank, FileDescriptor socket) {
  const std::lock_guard lock(mutex_);
  sockets_.push_back(std::move(socket));
  threads_.emplace_back([this, rank, fd = sockets_.back().get()] { serve(rank, fd); });
}

void MeetingServer::serve(int rank, int socket) {
  while (true) {
    std::optional<wire::Message> request = wire::receive(socket);
    try {
      if (!request) break;
      wire::Reader in(request->bytes);
      const std::int64_t kind = in.number();
      if (kind == kGoodbye) {
        if (roster_->state(rank) == Roster::State::present) roster_->finished(rank);
        return;
      }
      TW_REQUIRE(kind == kMeet, ErrorKind::invalid, .where = "message between ranks", .what = "an unknown request");
      const Meeting meeting = decode(in, kMaxMembers);
      Piece own{in.text(), request->file ? std::make_shared<FileDescriptor>(std::move(request->file)) : nullptr};
      const auto still_there = [&] {
        TW_REQUIRE(!hung_up(socket) && !closing_, ErrorKind::lost, .where = meeting.what, .what = "the rank is gone");
      };
      const std::vector<Piece> pieces = meetings_.meet(meeting, std::move(own), still_there);
      if (!wire::send(socket, wire::Writer().number(kMet).bytes())) break;
      bool delivered = true;
      for (const Piece& piece : pieces)
        delivered = delivered && wire::send(socket, piece.value, piece.file ? piece.file->get() : -1);
      if (!delivered) break;
    } catch (const Error& error) {
      const auto reply =
          wire::Writer().number(kRefused).number(static_cast<std::int64_t>(error.kind())).text(error.what());
      if (!wire::send(socket, reply.bytes())) break;
    }
  }
  if (closing_) return;
  shutdown(socket, SHUT_RDWR);
  if (roster_->state(rank) != Roster::State::present) return;
  const Error error(ErrorKind::lost, {.where = "rank " + std::to_string(rank), .what = "its process has died"});
  roster_->lost(rank, Roster::State::died, ErrorKind::lost, error.what());
}

MeetingClient::~MeetingClient() {
  if (graceful_) wire::send(socket_.get(), wire::Writer().number(kGoodbye).bytes());
}

void MeetingClient::gone() const {
  if (host_ < 0) throw Error(ErrorKind::lost, {.where = "group", .what = "the process that started the ranks is gone"});
  throw Error(ErrorKind::lost, {.where = "rank " + std::to_string(host_), .what = "its process has died"});
}

void MeetingClient::check() {
  if (hung_up(socket_.get())) gone();
}

std::vector<Piece> MeetingClient::meet(const Meeting& meeting, Piece own) {
  const std::lock_guard lock(mutex_);
  if (!wire::send(socket_.get(), encode(meeting, own), own.file ? own.file->get() : -1)) gone();
  const std::optional<wire::Message> reply = wire::receive(socket_.get());
  if (!reply) gone();
  wire::Reader in(reply->bytes);
  if (in.number() != kMet) {
    const auto kind = static_cast<ErrorKind>(in.number());
    throw Error::quoted(kind, in.text());
  }
  std::vector<Piece> pieces;
  for (std::size_t m = 0; m < meeting.members.size(); ++m) {
    std::optional<wire::Message> message = wire::receive(socket_.get());
    if (!message) gone();
    pieces.push_back({std::move(message->bytes),
                      message->file ? std::make_shared<FileDescriptor>(std::move(message->file)) : nullptr});
  }
  return pieces;
}

}  // namespace tileway
