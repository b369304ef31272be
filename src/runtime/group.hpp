// What stands behind a Group.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/rendezvous.hpp"
#include "runtime/roster.hpp"
#include "tileway/group.hpp"

namespace tileway {

class Group::State {
 public:
  std::shared_ptr<Rendezvous> rendezvous;
  std::shared_ptr<Roster> roster;
  std::vector<int> members;  // world ranks
  int self = 0;              // place among them
  std::chrono::milliseconds deadline;
  std::string id = "world";                     // the same on every member, of no other group
  std::uint64_t meetings = 0;                   // so far, of this group
  std::map<std::string, std::uint64_t> made{};  // subgroups of this group so far, by their members

  // A meeting of all members at their next step. Throws Error (mismatch) on every one of them if they are at different
  // steps.
  std::vector<Piece> meet(std::string_view what, Piece own);
};

}  // namespace tileway
