// Taking a place among ranks that a launcher has started on this machine.
//
// Rank 0 serves. It listens on a socket with a random name in a directory of this user's (0700, checked), and publishes
// the name in a file there whose own name is a hash of what only the ranks of this launch share: the launcher's
// rendezvous variables and its process id. The others wait for that file, connect, and say who they are; the server
// checks that they are processes of the same user. The socket and the file are removed once all have come.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "base/env.hpp"
#include "base/hash.hpp"
#include "runtime/group.hpp"
#include "runtime/server.hpp"
#include "runtime/wire.hpp"
#include "tileway/error.hpp"

namespace tileway {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

[[noreturn]] void refuse(const std::string& where, const std::string& what, const std::string& hint = {}) {
  throw Error(ErrorKind::system,
              {.where = where, .what = what, .got = errno ? std::strerror(errno) : "", .hint = hint});
}

// A directory that only this user can enter.
fs::path private_directory() {
  const fs::path path = fs::path(env::runtime_directory()) / fmt::format("tileway-{}", geteuid());
  mkdir(path.c_str(), 0700);
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) refuse(path.string(), "cannot be made");
  TW_REQUIRE(S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 0077) == 0, ErrorKind::system,
             .where = path.string(), .what = "is not a directory of this user's alone",
             .expected = "owner and mode 0700", .hint = "Remove it, or set XDG_RUNTIME_DIR to a private directory");
  return path;
}

fs::path notice_path(const fs::path& directory, const env::Launch& launch) {
  return directory / fmt::format("{:016x}.launch", fnv1a(launch.rendezvous + std::to_string(getppid())));
}

sockaddr_un address_of(const fs::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  TW_REQUIRE(path.string().size() < sizeof(address.sun_path), ErrorKind::system, .where = path.string(),
             .what = "too long for a socket's name", .hint = "Set XDG_RUNTIME_DIR to a shorter directory");
  std::memcpy(address.sun_path, path.c_str(), path.string().size());
  return address;
}

bool same_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

// Files that are removed with the object.
struct Published {
  fs::path socket;
  fs::path notice;
  ~Published() {
    std::error_code ignored;
    fs::remove(socket, ignored);
    fs::remove(notice, ignored);
  }
};

// Rank 0's own client. The server stays until every rank has ended, or the deadline: they may still need it.
class HostingClient : public Rendezvous {
 public:
  HostingClient(std::shared_ptr<MeetingServer> server, FileDescriptor socket, std::shared_ptr<Roster> roster, int ranks)
      : server_(std::move(server)), roster_(std::move(roster)), ranks_(ranks) {
    client_ = std::make_unique<MeetingClient>(std::move(socket), 0);
  }
  ~HostingClient() override {
    client_.reset();
    const auto deadline = Clock::now() + env::deadline();
    const auto present = [&](int rank) { return roster_->state(rank) == Roster::State::present; };
    for (int rank = 0; rank < ranks_; ++rank) {
      while (present(rank) && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  std::vector<Piece> meet(const Meeting& meeting, Piece own) override { return client_->meet(meeting, std::move(own)); }
  void check() override {}

 private:
  std::shared_ptr<MeetingServer> server_;
  std::unique_ptr<MeetingClient> client_;
  std::shared_ptr<Roster> roster_;
  int ranks_;
};

struct Place {
  std::shared_ptr<Rendezvous> rendezvous;
  std::shared_ptr<Roster> roster;
};

Place host(const env::Launch& launch, Clock::time_point deadline) {
  std::array<std::uint64_t, 2> random{};
  if (getrandom(random.data(), sizeof(random), 0) != sizeof(random)) refuse("rank 0", "no random numbers");
  const fs::path directory = private_directory();
  Published published{directory / fmt::format("{:016x}{:016x}", random[0], random[1]), notice_path(directory, launch)};
  FileDescriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = address_of(published.socket);
  if (!listener || bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      listen(listener.get(), launch.world_size) != 0) {
    refuse(published.socket.string(), "rank 0 cannot listen");
  }
  const fs::path draft = published.socket.string() + ".name";
  std::ofstream(draft) << published.socket.filename().string();
  fs::rename(draft, published.notice);

  FileDescriptor roster_file(Roster::make_file(launch.world_size));
  auto roster = Roster::mapped(roster_file.get(), launch.world_size);
  auto server = std::make_shared<MeetingServer>(roster);
  std::vector<bool> come(launch.world_size);
  come[0] = true;
  while (std::find(come.begin(), come.end(), false) != come.end()) {
    pollfd waiting{.fd = listener.get(), .events = POLLIN, .revents = 0};
    poll(&waiting, 1, 50);
    if (Clock::now() > deadline) {
      const auto missing = std::find(come.begin(), come.end(), false) - come.begin();
      throw Error(ErrorKind::lost,
                  {.where = "group", .what = fmt::format("rank {} did not come before the deadline", missing)});
    }
    if ((waiting.revents & POLLIN) == 0) continue;
    FileDescriptor peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const timeval patience{.tv_sec = 1, .tv_usec = 0};  // a stranger that says nothing is not waited for
    if (!peer || !same_user(peer.get())) continue;
    setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    const std::optional<wire::Message> hello = wire::receive(peer.get());
    if (!hello || hello->bytes.size() != sizeof(std::int64_t)) continue;
    const std::int64_t rank = wire::Reader(hello->bytes).number();
    if (rank <= 0 || rank >= launch.world_size || come[rank]) continue;
    const timeval forever{};
    setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof(forever));
    if (!wire::send(peer.get(), "roster", roster_file.get())) continue;
    come[rank] = true;
    server->add(static_cast<int>(rank), std::move(peer));
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) refuse("rank 0", "no socket");
  server->add(0, FileDescriptor(ends[0]));
  return {std::make_shared<HostingClient>(server, FileDescriptor(ends[1]), roster, launch.world_size), roster};
}

Place join(const env::Launch& launch, Clock::time_point deadline) {
  const fs::path directory = private_directory();
  const fs::path notice = notice_path(directory, launch);
  while (true) {
    TW_REQUIRE(Clock::now() < deadline, ErrorKind::lost, .where = fmt::format("rank {}", launch.rank),
               .what = "rank 0 could not be reached before the deadline",
               .hint = "All ranks run on this machine, under one launcher, as one user");
    std::string name;
    std::ifstream(notice) >> name;
    FileDescriptor link(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!link) refuse("rank", "no socket");
    if (!name.empty() && name.find('/') == name.npos) {
      const sockaddr_un address = address_of(directory / name);
      const bool connected = connect(link.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
      if (connected && wire::send(link.get(), wire::Writer().number(launch.rank).bytes())) {
        std::optional<wire::Message> welcome = wire::receive(link.get());
        if (welcome && welcome->file) {
          auto roster = Roster::mapped(welcome->file.get(), launch.world_size);
          return {std::make_shared<MeetingClient>(std::move(link), 0), roster};
        }
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

int Group::launched_ranks() {
  const std::optional<env::Launch> launch = env::launch();
  return launch ? launch->world_size : 0;
}

Group Group::from_environment() {
  const std::optional<env::Launch> launch = env::launch();
  TW_REQUIRE(launch.has_value(), ErrorKind::invalid, .where = "group", .what = "no launcher has started this process",
             .expected = "RANK and WORLD_SIZE in the environment",
             .hint = "Start it with torchrun, or use Group::spawn");
  TW_REQUIRE(launch->local_world_size == launch->world_size, ErrorKind::invalid, .where = "group",
             .what = "ranks on several machines",
             .expected = fmt::format("all {} ranks on this one", launch->world_size),
             .got = std::to_string(launch->local_world_size));
  const auto deadline = Clock::now() + env::deadline();
  const Place place = launch->rank == 0 ? host(*launch, deadline) : join(*launch, deadline);
  auto state = std::make_shared<State>();
  state->rendezvous = place.rendezvous;
  state->roster = place.roster;
  state->members.resize(launch->world_size);
  std::iota(state->members.begin(), state->members.end(), 0);
  state->self = launch->rank;
  state->roster->arrived(launch->rank);
  state->deadline = env::deadline();
  return Group(state);
}

}  // namespace tileway
