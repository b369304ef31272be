// The meetings of one world, kept by one process: what the thread ranks use directly and a server offers to processes.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/rendezvous.hpp"
#include "runtime/roster.hpp"

namespace tileway {

class Meetings : public Rendezvous {
 public:
  explicit Meetings(std::shared_ptr<Roster> roster) : roster_(std::move(roster)) {}

  std::vector<Piece> meet(const Meeting& meeting, Piece own) override {
    return meet(meeting, std::move(own), [] {});
  }
  // The same; `while_waiting` is called every few milliseconds and ends the meeting by throwing.
  std::vector<Piece> meet(const Meeting& meeting, Piece own, const std::function<void()>& while_waiting);
  void check() override {}

 private:
  struct Table {
    std::vector<Piece> pieces;
    std::vector<bool> present;
    std::size_t arrived = 0;
    std::size_t left = 0;
  };

  void leave(const Meeting& meeting);

  std::shared_ptr<Roster> roster_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Table> tables_;
};

}  // namespace tileway
