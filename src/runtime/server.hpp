// Meetings for processes: a server that holds them, and a client in each rank.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/meetings.hpp"
#include "tileway/error.hpp"

namespace tileway {

// Serves every rank's connection on a thread of its own, from construction to destruction, and each meeting on one too:
// threads of a rank may be in different meetings at once, in any order. A connection that ends without a goodbye means
// that its rank has died; one that sends nonsense is closed.
class MeetingServer {
 public:
  explicit MeetingServer(std::shared_ptr<Roster> roster) : roster_(roster), meetings_(std::move(roster)) {}
  ~MeetingServer();
  void add(int rank, FileDescriptor socket);

 private:
  struct Connection;
  void serve(int rank, int socket);
  // Takes a request to its meeting and answers it.
  void answer(Connection& connection, std::int64_t ticket, const Meeting& meeting, Piece own);

  std::shared_ptr<Roster> roster_;
  Meetings meetings_;
  std::atomic<bool> closing_{false};
  std::mutex mutex_;
  std::vector<FileDescriptor> sockets_;
  std::vector<std::thread> threads_;
};

// The rank's side of such a connection. `host` is the rank whose process serves, or -1 for a parent that outlives all.
class MeetingClient : public Rendezvous {
 public:
  MeetingClient(FileDescriptor socket, int host) : socket_(std::move(socket)), host_(host) {}
  ~MeetingClient() override;  // says goodbye
  std::vector<Piece> meet(const Meeting& meeting, Piece own) override;
  void check() override;
  // Leaves without a goodbye: what a rank that fails does.
  void abandon() { graceful_ = false; }

 private:
  struct Reply {
    std::vector<Piece> pieces;
    std::optional<Error> refused;
  };
  [[noreturn]] void gone() const;
  // Reads one reply, whoever waits for it; false when the other side is gone.
  bool read_reply();

  FileDescriptor socket_;
  int host_;
  bool graceful_ = true;
  std::mutex sending_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t last_ticket_ = 0;
  std::map<std::int64_t, Reply> replies_;  // read and not yet fetched, by ticket
  bool reading_ = false;                   // one of those who wait reads for all
  bool gone_ = false;
};

}  // namespace tileway
