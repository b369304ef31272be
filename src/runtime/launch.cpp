// Starting ranks on this machine, as processes or as threads.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <numeric>
#include <optional>
#include <thread>

#include "base/env.hpp"
#include "runtime/group.hpp"
#include "runtime/meetings.hpp"
#include "runtime/server.hpp"
#include "tileway/error.hpp"

namespace tileway {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(1);
constexpr auto kGrace = std::chrono::seconds(1);

void require_size(int size) {
  TW_REQUIRE(size >= 1 && size <= 1024, ErrorKind::invalid, .where = "group", .what = "impossible number of ranks",
             .expected = "1 to 1024", .got = std::to_string(size));
}

std::shared_ptr<Group::State> world_state(std::shared_ptr<Rendezvous> rendezvous, const std::shared_ptr<Roster>& roster,
                                          int rank, int size) {
  auto state = std::make_shared<Group::State>();
  state->rendezvous = std::move(rendezvous);
  state->roster = roster;
  state->members.resize(size);
  std::iota(state->members.begin(), state->members.end(), 0);
  state->self = rank;
  state->deadline = env::deadline();
  roster->arrived(rank);
  return state;
}

// Runs the body; whatever it throws is recorded as this rank's failure. True if it returned.
bool run_recorded(const std::function<void(Group&)>& body, Group& group, Roster& roster, int rank) {
  const auto failed = [&](ErrorKind kind, const std::string& text) {
    if (roster.state(rank) == Roster::State::present) roster.lost(rank, Roster::State::failed, kind, text);
    return false;
  };
  try {
    body(group);
    return true;
  } catch (const Error& error) {
    return failed(error.kind(), error.what());
  } catch (const std::exception& error) {
    return failed(ErrorKind::system, fmt::format("[tileway] rank {}: {}", rank, error.what()));
  }
}

[[noreturn]] void rethrow_first(const Roster& roster) { throw Error::quoted(roster.first_kind(), roster.first_text()); }

[[noreturn]] void child_main(const std::function<void(Group&)>& body, const std::shared_ptr<Roster>& roster,
                             FileDescriptor socket, int rank, int size, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before we asked
  bool fine = false;
  {
    auto client = std::make_shared<MeetingClient>(std::move(socket), -1);
    Group group(world_state(client, roster, rank, size));
    fine = run_recorded(body, group, *roster, rank);
    if (!fine) client->abandon();
  }
  std::cout.flush();
  std::fflush(nullptr);
  _exit(fine ? 0 : 1);
}

struct Child {
  pid_t pid = -1;
  bool ended = false;
};

void note_end(Roster& roster, int rank, int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  const Roster::State state = roster.state(rank);
  if (state == Roster::State::failed) return;
  const std::string how = WIFSIGNALED(status) ? fmt::format("its process was ended by signal {}", WTERMSIG(status))
                                              : fmt::format("its process ended with status {}", WEXITSTATUS(status));
  const Error error(ErrorKind::lost, {.where = fmt::format("rank {}", rank), .what = how});
  roster.lost(rank, Roster::State::died, ErrorKind::lost, error.what());
}

// Waits for all; once one has failed, the others get the deadline and a second to notice.
void await(std::vector<Child>& children, Roster& roster, std::chrono::milliseconds deadline) {
  std::optional<std::chrono::steady_clock::time_point> patience;
  std::size_t left = children.size();
  while (left > 0) {
    for (std::size_t rank = 0; rank < children.size(); ++rank) {
      Child& child = children[rank];
      int status = 0;
      if (child.ended || waitpid(child.pid, &status, WNOHANG) != child.pid) continue;
      child.ended = true;
      --left;
      note_end(roster, static_cast<int>(rank), status);
    }
    const auto now = std::chrono::steady_clock::now();
    if (!patience && roster.first_failed() >= 0) patience = now + deadline + kGrace;
    if (patience && now > *patience) {
      for (const Child& child : children) {
        if (!child.ended) kill(child.pid, SIGKILL);
      }
    }
    if (left > 0) std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace

void Group::spawn(int size, const std::function<void(Group&)>& body) {
  require_size(size);
  const auto deadline = env::deadline();
  const std::shared_ptr<Roster> roster = Roster::anonymous(size);
  std::vector<FileDescriptor> ours;
  std::vector<Child> children;
  std::cout.flush();
  std::fflush(nullptr);
  const pid_t parent = getpid();
  std::string trouble;
  for (int rank = 0; rank < size && trouble.empty(); ++rank) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      trouble = std::strerror(errno);
      break;
    }
    FileDescriptor server_end(ends[0]);
    FileDescriptor rank_end(ends[1]);
    const pid_t pid = fork();
    if (pid == 0) {
      ours.clear();
      server_end = FileDescriptor();
      child_main(body, roster, std::move(rank_end), rank, size, parent);
    }
    if (pid < 0) trouble = std::strerror(errno);
    if (pid > 0) children.push_back({pid});
    ours.push_back(std::move(server_end));
  }
  if (!trouble.empty()) {
    for (const Child& child : children) kill(child.pid, SIGKILL);
    for (const Child& child : children) waitpid(child.pid, nullptr, 0);
    throw Error(ErrorKind::system,
                {.where = fmt::format("{} ranks", size), .what = "a process could not be started", .got = trouble});
  }
  {
    MeetingServer server(roster);
    for (int rank = 0; rank < size; ++rank) server.add(rank, std::move(ours[rank]));
    await(children, *roster, deadline);
  }
  if (roster->first_failed() >= 0) rethrow_first(*roster);
}

void Group::threads(int size, const std::function<void(Group&)>& body) {
  require_size(size);
  const std::shared_ptr<Roster> roster = Roster::anonymous(size);
  const auto meetings = std::make_shared<Meetings>(roster);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Group group(world_state(meetings, roster, rank, size));
      if (run_recorded(body, group, *roster, rank)) roster->finished(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (roster->first_failed() >= 0) rethrow_first(*roster);
}

}  // namespace tileway
