// Who is still there: a page of memory that all ranks of a world share.
//
// Each rank's state has one writer at a time: the rank itself, or, once it is gone, whoever saw it go. The first
// failure of the world is recorded once: whoever wins `claimed` writes rank, kind and text and then sets `recorded`
// (release); readers look at them only after they have seen `recorded` (acquire). Nothing is ever reset.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tileway/error.hpp"

namespace tileway {

class Roster {
 public:
  enum class State : std::uint32_t { present, finished, failed, died };

  // Shared by all processes forked later and by all threads.
  static std::shared_ptr<Roster> anonymous(int ranks);
  // In a file that other processes map: `fd` as made by make_file.
  static int make_file(int ranks);
  static std::shared_ptr<Roster> mapped(int fd, int ranks);
  ~Roster();

  // A rank has come; which process it is.
  void arrived(int rank);
  // 0 before it has come.
  pid_t process(int rank) const;
  State state(int rank) const;
  void finished(int rank);
  // Records that a rank has gone; its text becomes the world's first failure unless there is one.
  void lost(int rank, State how, ErrorKind kind, const std::string& text);
  // Throws Error when one of the ranks has failed or died; `self` is never reported to itself.
  void check(std::span<const int> ranks, int self) const;
  // The first failure: its rank, or -1.
  int first_failed() const;
  ErrorKind first_kind() const;
  std::string first_text() const;

 private:
  struct Page;
  Roster(void* memory, int ranks) : memory_(memory), ranks_(ranks) {}
  Page& page() const { return *static_cast<Page*>(memory_); }
  struct Slot {
    std::atomic<std::uint32_t> state;
    std::atomic<std::int32_t> process;
  };
  Slot& slot(int rank) const;

  void* memory_;
  int ranks_;
};

}  // namespace tileway
