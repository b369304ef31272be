// The ranks that run a program together, and the memory that they share.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tileway/error.hpp"

namespace tileway {

// Memory of the same size on every rank of a group, mapped by all of them. Zeroed when it is made. Mappings end with
// the object; a peer's mapping stays valid until that peer's own object ends.
class SymmetricMemory {
 public:
  struct Mapping;
  explicit SymmetricMemory(std::vector<std::shared_ptr<Mapping>> mappings);
  SymmetricMemory(SymmetricMemory&&) noexcept;
  SymmetricMemory& operator=(SymmetricMemory&&) noexcept;
  ~SymmetricMemory();

  // The bytes that belong to `rank`, readable and writable from here. 64-byte aligned.
  std::span<std::byte> on(int rank) const;

 private:
  std::vector<std::shared_ptr<Mapping>> mappings_;
};

// One rank's view of a group. Every member calls the collective functions in the same order. Each of them throws Error
// (lost), naming the rank that is missing, when the others have not arrived before the deadline or a member has failed.
class Group {
 public:
  // Starts `size` processes on this machine by fork, runs `body` in each, and waits for all. Throws the first Error
  // that a rank threw (its text and kind), or Error (lost) for a rank that died. No process is left behind.
  // Call it before the process has started threads.
  static void spawn(int size, const std::function<void(Group&)>& body);
  // The same with ranks as threads of this process: for sanitizers and debuggers.
  static void threads(int size, const std::function<void(Group&)>& body);
  // Takes the place that a launcher gave this process: RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT
  // as torchrun sets them. All ranks must be on this machine.
  static Group from_environment();
  // How many ranks a launcher has started, this process among them; 0 if none has.
  static int launched_ranks();

  class State;  // for the library itself
  explicit Group(std::shared_ptr<State> state);
  State& state() { return *state_; }

  int rank() const;
  int size() const;
  int world_rank() const;                      // among all that were started together, of whom this may be a subgroup
  std::chrono::milliseconds deadline() const;  // TILEWAY_DEADLINE_MS, 30 s by default
  void set_deadline(std::chrono::milliseconds deadline);

  // Collective. The values that the members passed, by rank. `what` names the step in errors, and must agree.
  std::vector<std::string> all_gather(const std::string& value, std::string_view what);
  // Collective. Returns when every member has called it.
  void barrier(std::string_view what);
  // Collective over the listed members only (ranks of this group, ascending, this rank among them). Their ranks in the
  // new group are their positions in the list.
  Group subgroup(std::span<const int> ranks);
  // Collective. Throws the same Error (mismatch) on every rank when the sizes differ.
  SymmetricMemory allocate(std::size_t bytes);

  // Tells every member that this rank has failed, and why; what they wait for then throws that text.
  void announce_failure(const Error& error);
  // Throws Error (lost) when a member of this group has failed or died; otherwise returns at once. Cheap enough to
  // call every few milliseconds while waiting.
  void check_members();
  // What the system knows of the process of a rank, for the text of an error: "" while it runs, " (its process is
  // stopped)".
  std::string process_state(int rank) const;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace tileway
