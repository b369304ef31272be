#include "runtime/server.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <thread>

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

std::string encode(std::int64_t ticket, const Meeting& meeting, const Piece& own) {
  wire::Writer out;
  out.number(kMeet)
      .number(ticket)
      .text(meeting.key)
      .text(meeting.what)
      .number(meeting.deadline.count())
      .number(meeting.self);
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

struct MeetingServer::Connection {
  int socket;
  std::mutex mutex;  // of all below, and for sending: a reply is several messages
  std::condition_variable changed;
  int meetings = 0;  // that it takes part in now
  bool broken = false;
};

void MeetingServer::answer(Connection& connection, std::int64_t ticket, const Meeting& meeting, Piece own) {
  const auto still_there = [&] {
    TW_REQUIRE(!hung_up(connection.socket) && !closing_, ErrorKind::lost, .where = meeting.what,
               .what = "the rank is gone");
  };
  bool sent = false;
  try {
    const std::vector<Piece> pieces = meetings_.meet(meeting, std::move(own), still_there);
    const std::lock_guard lock(connection.mutex);
    const auto count = static_cast<std::int64_t>(pieces.size());
    sent = wire::send(connection.socket, wire::Writer().number(kMet).number(ticket).number(count).bytes());
    for (const Piece& piece : pieces)
      sent = sent && wire::send(connection.socket, piece.value, piece.file ? piece.file->get() : -1);
  } catch (const Error& error) {
    const std::lock_guard lock(connection.mutex);
    const auto kind = static_cast<std::int64_t>(error.kind());
    sent = wire::send(connection.socket,
                      wire::Writer().number(kRefused).number(ticket).number(kind).text(error.what()).bytes());
  }
  const std::lock_guard lock(connection.mutex);
  connection.broken = connection.broken || !sent;
  if (!sent) shutdown(connection.socket, SHUT_RDWR);
  --connection.meetings;
  connection.changed.notify_all();
}

void MeetingServer::serve(int rank, int socket) {
  Connection connection{.socket = socket, .mutex = {}, .changed = {}};
  bool goodbye = false;
  try {
    while (!goodbye) {
      std::optional<wire::Message> request = wire::receive(socket);
      if (!request) break;
      wire::Reader in(request->bytes);
      const std::int64_t kind = in.number();
      goodbye = kind == kGoodbye;
      if (goodbye) break;
      TW_REQUIRE(kind == kMeet, ErrorKind::invalid, .where = "message between ranks", .what = "an unknown request");
      const std::int64_t ticket = in.number();
      const Meeting meeting = decode(in, kMaxMembers);
      Piece own{in.text(), request->file ? std::make_shared<FileDescriptor>(std::move(request->file)) : nullptr};
      {
        const std::lock_guard lock(connection.mutex);
        ++connection.meetings;
      }
      std::thread([this, &connection, ticket, meeting, own = std::move(own)]() mutable {
        answer(connection, ticket, meeting, std::move(own));
      }).detach();  // waited for below
    }
  } catch (const Error&) {
    goodbye = false;  // nonsense: the connection is closed
  }
  if (!goodbye) shutdown(socket, SHUT_RDWR);
  {
    std::unique_lock lock(connection.mutex);
    connection.changed.wait(lock, [&] { return connection.meetings == 0; });
  }
  if (closing_ || roster_->state(rank) != Roster::State::present) return;
  if (goodbye) {
    roster_->finished(rank);
    return;
  }
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

bool MeetingClient::read_reply() {
  const std::optional<wire::Message> message = wire::receive(socket_.get());
  if (!message) return false;
  wire::Reader in(message->bytes);
  const std::int64_t kind = in.number();
  const std::int64_t ticket = in.number();
  const std::int64_t number = in.number();
  Reply reply;
  if (kind != kMet) reply.refused = Error::quoted(static_cast<ErrorKind>(number), in.text());
  for (std::int64_t m = 0; kind == kMet && m < number; ++m) {
    std::optional<wire::Message> piece = wire::receive(socket_.get());
    if (!piece) return false;
    auto file = piece->file ? std::make_shared<FileDescriptor>(std::move(piece->file)) : nullptr;
    reply.pieces.push_back({std::move(piece->bytes), std::move(file)});
  }
  const std::lock_guard lock(mutex_);
  replies_.emplace(ticket, std::move(reply));
  return true;
}

std::vector<Piece> MeetingClient::meet(const Meeting& meeting, Piece own) {
  std::unique_lock lock(mutex_);
  const std::int64_t ticket = ++last_ticket_;
  lock.unlock();
  {
    const std::lock_guard sending(sending_);
    if (!wire::send(socket_.get(), encode(ticket, meeting, own), own.file ? own.file->get() : -1)) gone();
  }
  lock.lock();
  while (!replies_.contains(ticket)) {
    if (gone_) gone();
    if (reading_) {
      changed_.wait(lock);
      continue;
    }
    reading_ = true;
    lock.unlock();
    const bool read = read_reply();
    lock.lock();
    reading_ = false;
    gone_ = gone_ || !read;
    changed_.notify_all();
  }
  Reply reply = std::move(replies_.extract(ticket).mapped());
  if (reply.refused) throw Error(*reply.refused);
  return std::move(reply.pieces);
}

}  // namespace tileway
