#include "runtime/meetings.hpp"

#include <fmt/format.h>

#include "tileway/error.hpp"

namespace tileway {
namespace {

constexpr auto kSlice = std::chrono::milliseconds(10);

}  // namespace

void Meetings::leave(const Meeting& meeting) {
  const auto found = tables_.find(meeting.key);
  if (found != tables_.end() && ++found->second.left == found->second.arrived) tables_.erase(found);
}

std::vector<Piece> Meetings::meet(const Meeting& meeting, Piece own, const std::function<void()>& while_waiting) {
  const auto deadline = std::chrono::steady_clock::now() + meeting.deadline;
  std::unique_lock lock(mutex_);
  Table& table = tables_[meeting.key];
  table.pieces.resize(meeting.members.size());
  table.present.resize(meeting.members.size());
  table.pieces[meeting.self] = std::move(own);
  table.present[meeting.self] = true;
  ++table.arrived;
  changed_.notify_all();
  while (table.arrived != meeting.members.size()) {
    const bool late = changed_.wait_until(lock, std::min(deadline, std::chrono::steady_clock::now() + kSlice)) ==
                          std::cv_status::timeout &&
                      std::chrono::steady_clock::now() >= deadline;
    if (table.arrived == meeting.members.size()) break;
    try {
      while_waiting();
      roster_->check(meeting.members, meeting.members[meeting.self]);
      std::vector<int> missing;
      for (std::size_t m = 0; m < meeting.members.size(); ++m) {
        if (table.present[m]) continue;
        missing.push_back(meeting.members[m]);
        TW_REQUIRE(roster_->state(meeting.members[m]) != Roster::State::finished, ErrorKind::lost,
                   .where = meeting.what,
                   .what = fmt::format("rank {} has ended without taking part", meeting.members[m]));
      }
      TW_REQUIRE(
          !late, ErrorKind::lost, .where = meeting.what,
          .what = fmt::format("rank {} did not come within {} ms", fmt::join(missing, ", "), meeting.deadline.count()));
    } catch (...) {
      leave(meeting);
      throw;
    }
  }
  std::vector<Piece> pieces = table.pieces;
  leave(meeting);
  return pieces;
}

}  // namespace tileway
