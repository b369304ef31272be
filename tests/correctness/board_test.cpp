// What is said of the rank that keeps others waiting, from where the ranks' lanes are.
#include <gtest/gtest.h>

#include <algorithm>

#include "exec/board.hpp"
#include "support/draft.hpp"

namespace tileway {
namespace {

// Both ranks compute, exchange, and add what has come; the boards are as before the first run.
class Waiting : public ::testing::Test {
 protected:
  Waiting() : draft_("p", 2) {
    for (int r : {0, 1}) {
      const std::int32_t sm = draft_.lane(r);
      const std::int32_t calls = draft_.lane(r, Engine::collective);
      const BufferId x = draft_.input(r), own = draft_.buffer(r, "own"), theirs = draft_.buffer(r, "theirs");
      const TaskId first = draft_.task(sm, {x}, {own});
      std::vector<BufferId> given{own, own};
      std::vector<BufferId> taken{theirs, theirs};
      given[r] = taken[r] = -1;
      call_[r] = draft_.exchange(calls, 0, given, taken);
      const TaskId sum = draft_.task(sm, {own, theirs}, {draft_.output(r)});
      fed_[r] = draft_.signal(r, {first}, {call_[r]});
      done_[r] = draft_.signal(r, {call_[r]}, {sum});
    }
    layout_.emplace(draft_.plan);
    memory_.assign(2, std::vector<std::byte>(layout_->board_bytes));
    board_.emplace(draft_.plan, *layout_, std::vector<std::byte*>{memory_[0].data(), memory_[1].data()});
    for (std::int32_t lane = 0; lane < 4; ++lane) at(lane, 0, 0, -1);
  }
  // Lanes 0 and 2 compute, 1 and 3 call.
  void at(std::int32_t lane, std::uint32_t run, std::uint32_t index, std::int32_t signal) {
    LanePlace& place = board_->lane(lane);
    place.run = run;
    place.index = index;
    place.signal = signal;
    std::atomic<std::uint32_t>& begun = board_->runs_begun(draft_.plan.lanes[lane].rank);
    begun = std::max<std::uint32_t>(begun, run);
  }
  // Rank 0 has made its call, and waits for what it brings.
  void rank_0_waits() {
    at(0, 1, 1, done_[0]);
    at(1, 1, 1, -1);
  }
  std::string root() const {
    return board_->root_of(done_[0], 1, [](int) { return ""; });
  }
  std::string absent() const {
    return board_->absent_from(call_[0], 1, [](int) { return ""; });
  }

  testing::Draft draft_;
  TaskId call_[2] = {};
  SignalId fed_[2] = {};
  SignalId done_[2] = {};
  std::optional<PlanLayout> layout_;
  std::vector<std::vector<std::byte>> memory_;
  std::optional<Board> board_;
};
using BoardOfACollective = Waiting;

TEST_F(BoardOfACollective, NamesTheRankThatHasNotBegunTheRun) {
  rank_0_waits();
  EXPECT_EQ(absent(), "rank 1 has not begun run 0");
  EXPECT_EQ(root(),
            "by rank 1, which has not begun run 0; in between task 1 (rank 0, by hand) waits for its other members");
}

TEST_F(BoardOfACollective, NamesTheTaskThatKeepsARankFromItsCall) {
  rank_0_waits();
  at(2, 1, 0, -1);
  at(3, 1, 0, fed_[1]);
  EXPECT_NE(absent().find("rank 1 has not come to it: there signal 2 was not raised by rank 1, which is at task 3"),
            std::string::npos)
      << absent();
  EXPECT_NE(root().find("by rank 1, which is at task 3 (rank 1, by hand) and waits for nothing"), std::string::npos)
      << root();
}

TEST_F(BoardOfACollective, SaysThatAllHaveComeWhereTheLibraryDoesNotEnd) {
  rank_0_waits();
  at(3, 1, 0, -1);  // in its call
  EXPECT_EQ(absent(), "all members have come to it");
  at(3, 1, 1, -1);  // or beyond it
  EXPECT_EQ(absent(), "all members have come to it");
}

}  // namespace
}  // namespace tileway
