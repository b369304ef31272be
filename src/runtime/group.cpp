#include "runtime/group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "runtime/memory.hpp"
#include "tileway/error.hpp"

namespace tileway {

std::vector<Piece> Group::State::meet(std::string_view what, Piece own) {
  Meeting meeting;
  meeting.key = fmt::format("{}:{}", id, meetings++);
  meeting.what = what;
  meeting.members = members;
  meeting.self = self;
  meeting.deadline = deadline;
  own.value = std::string(what) + '\n' + own.value;
  std::vector<Piece> pieces = rendezvous->meet(meeting, std::move(own));
  const auto step = [&](std::size_t m) { return pieces[m].value.substr(0, pieces[m].value.find('\n')); };
  for (std::size_t m = 1; m < pieces.size(); ++m) {
    TW_REQUIRE(step(m) == step(0), ErrorKind::mismatch, .where = "group", .what = "the ranks are at different steps",
               .got = fmt::format("rank {} at '{}', rank {} at '{}'", 0, step(0), m, step(m)),
               .hint = "Collective calls come in the same order on every rank");
  }
  for (Piece& piece : pieces) piece.value.erase(0, what.size() + 1);
  return pieces;
}

Group::Group(std::shared_ptr<State> state) : state_(std::move(state)) {}
int Group::rank() const { return state_->self; }
int Group::world_rank() const { return state_->members[state_->self]; }
int Group::size() const { return static_cast<int>(state_->members.size()); }
std::chrono::milliseconds Group::deadline() const { return state_->deadline; }
void Group::set_deadline(std::chrono::milliseconds deadline) { state_->deadline = deadline; }

std::vector<std::string> Group::all_gather(const std::string& value, std::string_view what) {
  std::vector<std::string> values;
  for (Piece& piece : state_->meet(what, {value, nullptr})) values.push_back(std::move(piece.value));
  return values;
}

void Group::barrier(std::string_view what) { state_->meet(what, {}); }

Group Group::subgroup(std::span<const int> ranks) {
  const bool ascending = std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  const auto self = std::find(ranks.begin(), ranks.end(), rank());
  TW_REQUIRE(!ranks.empty() && ascending && ranks.front() >= 0 && ranks.back() < size() && self != ranks.end(),
             ErrorKind::invalid, .where = "subgroup", .what = "not a subgroup that this rank could be in",
             .expected = fmt::format("ascending ranks below {}, {} among them", size(), rank()),
             .got = fmt::format("{}", fmt::join(ranks, ", ")));
  auto state = std::make_shared<State>();
  state->rendezvous = state_->rendezvous;
  state->roster = state_->roster;
  for (int rank : ranks) state->members.push_back(state_->members[rank]);
  state->self = static_cast<int>(self - ranks.begin());
  state->deadline = state_->deadline;
  // Members count the subgroups of these very ranks, so others' subgroups do not matter, and no message is needed.
  const std::string name = fmt::format("{}", fmt::join(ranks, ","));
  state->id = fmt::format("{}/{}#{}", state_->id, name, state_->made[name]++);
  return Group(state);
}

SymmetricMemory Group::allocate(std::size_t bytes) {
  auto file = std::make_shared<FileDescriptor>(make_shared_file(bytes));
  const std::vector<Piece> pieces = state_->meet("allocate", {std::to_string(bytes), std::move(file)});
  for (std::size_t m = 1; m < pieces.size(); ++m) {
    TW_REQUIRE(pieces[m].value == pieces[0].value, ErrorKind::mismatch, .where = "symmetric memory",
               .what = "the sizes differ across ranks",
               .got = fmt::format("{} bytes on rank 0, {} bytes on rank {}", pieces[0].value, pieces[m].value, m));
  }
  std::vector<std::shared_ptr<SymmetricMemory::Mapping>> mappings;
  for (const Piece& piece : pieces) mappings.push_back(map_shared_file(*piece.file, bytes));
  return SymmetricMemory(std::move(mappings));
}

void Group::announce_failure(const Error& error) {
  const int rank = world_rank();
  if (state_->roster->state(rank) == Roster::State::present) {
    state_->roster->lost(rank, Roster::State::failed, error.kind(), error.what());
  }
}

void Group::check_members() {
  state_->roster->check(state_->members, world_rank());
  state_->rendezvous->check();
}

std::string Group::process_state(int rank) const {
  const pid_t process = state_->roster->process(state_->members[rank]);
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');
  if (process <= 0 || name_end == line.npos || name_end + 2 >= line.size()) return "";
  const char state = line[name_end + 2];
  return state == 'T' || state == 't' ? " (its process is stopped)" : "";
}

}  // namespace tileway
