// Ranks that die, fail, stay away or disagree: every other rank says which, in time, and the process lives.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <stdexcept>

#include "support/run.hpp"
#include "tileway/error.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

using Clock = std::chrono::steady_clock;
using Launch = void (*)(int, const std::function<void(Group&)>&);

// What each rank saw, in memory that all processes share.
struct Report {
  char text[600];
  double seconds;
};
class Reports {
 public:
  Reports()
      : data_(static_cast<Report*>(
            mmap(nullptr, sizeof(Report) * 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~Reports() { munmap(data_, sizeof(Report) * 16); }
  Report& of(int rank) { return data_[rank]; }

  // Runs the body and keeps what it throws, with the time it took.
  void record(int rank, const std::function<void()>& body) {
    const auto begin = Clock::now();
    try {
      body();
    } catch (const Error& error) {
      std::strncpy(data_[rank].text, error.what(), sizeof(Report::text) - 1);
      data_[rank].seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      throw;
    }
  }

 private:
  Report* data_;
};

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Ranks, ProcessesAKilledRankIsNamedByAllOthersLongBeforeTheDeadline) {
  Reports reports;
  const std::string error = error_of([&] {
    Group::spawn(4, [&](Group& group) {
      reports.record(group.rank(), [&] {
        group.barrier("start");
        if (group.rank() == 2) raise(SIGKILL);
        group.barrier("never");
      });
    });
  });
  expect_contains(error, "rank 2");
  for (int rank : {0, 1, 3}) {
    expect_contains(reports.of(rank).text, "rank 2");
    EXPECT_LT(reports.of(rank).seconds, 10);
  }
}

TEST(Ranks, ProcessesAKilledRankIsNamedInTheMiddleOfRuns) {
  Reports reports;
  const Program program =
      make_program(find_operator("gemm_all_reduce"), 3, DType::f32, std::vector<std::int64_t>{60, 60, 60});
  const Plan plan = lower(program, Schedule::overlapped(program), testing::small_topology(3)).plan;
  const std::string error = error_of([&] {
    Group::spawn(3, [&](Group& group) {
      reports.record(group.rank(), [&] {
        HostExecutor executor(group, ProvenPlan::prove(plan));
        for (int run = 0; run < 1000000; ++run) {
          if (run == 50 && group.rank() == 1) raise(SIGKILL);
          executor.run();
        }
      });
    });
  });
  expect_contains(error, "rank 1");
  for (int rank : {0, 2}) expect_contains(reports.of(rank).text, "rank 1");
}

void a_throwing_rank_is_named(Launch launch) {
  Reports reports;
  const std::string error = error_of([&] {
    launch(3, [&](Group& group) {
      reports.record(group.rank(), [&] {
        group.barrier("start");
        if (group.rank() == 0) throw Error(ErrorKind::invalid, {.where = "weights", .what = "cannot be read"});
        group.barrier("never");
      });
    });
  });
  expect_contains(error, "weights: cannot be read");
  for (int rank : {1, 2}) expect_contains(reports.of(rank).text, "rank 0 failed: weights: cannot be read");
}

TEST(Ranks, ProcessesARankThatThrowsIsNamedWithItsReason) { a_throwing_rank_is_named(Group::spawn); }
TEST(Ranks, ThreadsARankThatThrowsIsNamedWithItsReason) { a_throwing_rank_is_named(Group::threads); }

void an_absent_rank_is_named(Launch launch) {
  Reports reports;
  const std::string error = error_of([&] {
    launch(3, [&](Group& group) {
      group.set_deadline(std::chrono::milliseconds(300));
      reports.record(group.rank(), [&] {
        if (group.rank() == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(900));
          return;
        }
        group.barrier("assembly");
      });
    });
  });
  expect_contains(error, "assembly: rank 1 did not come within 300 ms");
  EXPECT_LT(reports.of(0).seconds, 1.3);
}

TEST(Ranks, ProcessesAnAbsentRankIsNamedAtTheDeadline) { an_absent_rank_is_named(Group::spawn); }
TEST(Ranks, ThreadsAnAbsentRankIsNamedAtTheDeadline) { an_absent_rank_is_named(Group::threads); }

void a_rank_that_ended_is_named(Launch launch) {
  expect_contains(error_of([&] {
                    launch(3, [&](Group& group) {
                      if (group.rank() != 1) group.barrier("assembly");
                    });
                  }),
                  "rank 1 has ended without taking part");
}

TEST(Ranks, ProcessesARankThatEndedEarlyIsNamed) { a_rank_that_ended_is_named(Group::spawn); }
TEST(Ranks, ThreadsARankThatEndedEarlyIsNamed) { a_rank_that_ended_is_named(Group::threads); }

void disagreement_is_the_same_error_everywhere(Launch launch, const std::function<void(Group&)>& body,
                                               const std::string& expected) {
  Reports reports;
  error_of([&] { launch(4, [&](Group& group) { reports.record(group.rank(), [&] { body(group); }); }); });
  for (int rank = 0; rank < 4; ++rank) EXPECT_STREQ(reports.of(rank).text, reports.of(0).text) << rank;
  expect_contains(reports.of(0).text, expected);
}

void sizes_and_steps_must_agree(Launch launch) {
  disagreement_is_the_same_error_everywhere(
      launch, [](Group& group) { group.allocate(group.rank() == 3 ? 200 : 100); },
      "100 bytes on rank 0, 200 bytes on rank 3");
  disagreement_is_the_same_error_everywhere(
      launch,
      [](Group& group) {
        if (group.rank() == 2) group.barrier("two");
        if (group.rank() != 2) group.barrier("one");
      },
      "rank 0 at 'one', rank 2 at 'two'");
}

TEST(Ranks, ProcessesOtherSizesOrStepsAreTheSameErrorEverywhere) { sizes_and_steps_must_agree(Group::spawn); }
TEST(Ranks, ThreadsOtherSizesOrStepsAreTheSameErrorEverywhere) { sizes_and_steps_must_agree(Group::threads); }

void other_arguments_are_the_same_error(Launch launch) {
  const auto run_with = [](auto vary) {
    return [=](Group& group) {
      const auto [k, dtype, schedule] = vary(group.rank());
      const Program program =
          make_program(find_operator("gemm_all_reduce"), 4, dtype, std::vector<std::int64_t>{16, 16, k});
      HostExecutor executor(
          group,
          ProvenPlan::prove(lower(program, Schedule::named(program, schedule), testing::small_topology(4)).plan));
      executor.run();
    };
  };
  struct Arguments {
    std::int64_t k;
    DType dtype;
    const char* schedule;
  };
  disagreement_is_the_same_error_everywhere(
      launch, run_with([](int rank) {
        return Arguments{rank == 3 ? 32 : 64, DType::f32, "unfused"};
      }),
      "on rank 0 input 'x' is f32[16, 64] Shard(1, [16, 16, 16, 16]), on rank 3 input 'x' is f32[16, 32]");
  disagreement_is_the_same_error_everywhere(launch, run_with([](int rank) {
                                              return Arguments{64, rank == 1 ? DType::bf16 : DType::f32, "unfused"};
                                            }),
                                            "on rank 1 input 'x' is bf16");
  disagreement_is_the_same_error_everywhere(launch, run_with([](int rank) {
                                              return Arguments{64, DType::f32, rank == 2 ? "overlapped" : "unfused"};
                                            }),
                                            "on rank 0 the schedule is unfused, on rank 2 the schedule is overlapped");
}

TEST(Ranks, ProcessesOtherArgumentsAreTheSameErrorEverywhereBeforeAnythingRuns) {
  other_arguments_are_the_same_error(Group::spawn);
}
TEST(Ranks, ThreadsOtherArgumentsAreTheSameErrorEverywhereBeforeAnythingRuns) {
  other_arguments_are_the_same_error(Group::threads);
}

TEST(Ranks, ThreadsAStoppedRankIsNamedByTheWaitThatItLeavesOpen) {
  const Program program =
      make_program(find_operator("gemm_all_reduce"), 3, DType::f32, std::vector<std::int64_t>{24, 24, 24});
  const Plan plan = lower(program, Schedule::overlapped(program), testing::small_topology(3)).plan;
  Reports reports;
  error_of([&] {
    Group::threads(3, [&](Group& group) {
      group.set_deadline(std::chrono::milliseconds(400));
      reports.record(group.rank(), [&] {
        HostExecutor executor(group, ProvenPlan::prove(plan));
        executor.run();
        if (group.rank() == 2) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1500));
          return;
        }
        executor.run();
      });
    });
  });
  for (int rank : {0, 1}) {
    expect_contains(reports.of(rank).text, "rank");
    EXPECT_LT(reports.of(rank).seconds, 1.4);
  }
  // The first to notice names the rank that is late, its task and its signal.
  const std::string first = reports.of(0).text + std::string(reports.of(1).text);
  expect_contains(first, "was not raised within 400 ms by rank 2");
}

TEST(Ranks, ThreadsDataOutOfRangeIsAnErrorOnEveryRank) {
  Program program("lookup", 2);
  const Tensor table = program.input("table", DType::f32, {10, 4}, Replicate());
  const Tensor ids = program.input("ids", DType::i32, {6}, Shard(0));
  program.output("y", all_gather(gather_rows(table, ids)));
  Bindings inputs = random_inputs(program, 1, Fill::integers);
  inputs["ids"][1].set(2, 10);
  const Plan plan = lower(program, Schedule::overlapped(program), testing::small_topology(2)).plan;
  const std::string error = error_of([&] { testing::run_threads(program, plan, {inputs}); });
  expect_contains(error, "an index outside the table; expected 0 <= index < 10, got 10");
}

TEST(Ranks, ProcessesAfterAFaultTheSameProcessRunsAgain) {
  for (int round = 0; round < 3; ++round) {
    error_of([] {
      Group::spawn(3, [](Group& group) {
        if (group.rank() == 1) _exit(7);
        group.barrier("never");
      });
    });
    Group::spawn(3, [](Group& group) { group.barrier("fine"); });
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process was left behind";
  }
}

}  // namespace
}  // namespace tileway
