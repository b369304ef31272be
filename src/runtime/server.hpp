// Meetings for processes: a server that holds them, and a client in each rank.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/meetings.hpp"

namespace tileway {

// Serves every rank's connection on a thread of its own, from construction to destruction. A connection that ends
// without a goodbye means that its rank has died; one that sends nonsense is closed.
class MeetingServer {
 public:
  explicit MeetingServer(std::shared_ptr<Roster> roster) : roster_(roster), meetings_(std::move(roster)) {}
  ~MeetingServer();
  void add(int rank, FileDescriptor socket);

 private:
  void serve(int rank, int socket);

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
  [[noreturn]] void gone() const;

  std::mutex mutex_;
  FileDescriptor socket_;
  int host_;
  bool graceful_ = true;
};

}  // namespace tileway
