// Faults at random moments: every survivor names the right rank in time, and the process goes on.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <thread>

#include "support/run.hpp"
#include "tileway/error.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

using Clock = std::chrono::steady_clock;

enum class Deed : std::uint8_t { kill, stop, throws, leaves, other_plan };
constexpr int kDeeds = 5;
constexpr std::array<const char*, kDeeds> kDeedNames{"killed", "stopped", "throws", "leaves", "has another plan"};
constexpr auto kDeadline = std::chrono::milliseconds(500);

// What a survivor saw, in memory that all processes share.
struct Seen {
  char text[2000];
  double seconds;  // from the deed to the error
};

struct Stage {
  std::int64_t deed_ns;  // when it was done; 0 before
  Seen seen[8];
};

struct Round {
  int ranks;
  int culprit;
  Deed deed;
  int at_run;
  const char* op;
};

std::int64_t now_ns() { return Clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

void take_part(Group& group, const Round& round, const ProvenPlan& plan, const ProvenPlan& other, Stage& stage) {
  const bool culprit = group.rank() == round.culprit;
  const bool differs = culprit && round.deed == Deed::other_plan;
  if (differs) stage.deed_ns = now_ns();
  HostExecutor executor(group, differs ? other : plan);
  for (int run = 0; run < 1000000; ++run) {
    if (culprit && run == round.at_run) {
      stage.deed_ns = now_ns();
      if (round.deed == Deed::kill) raise(SIGKILL);
      if (round.deed == Deed::stop) raise(SIGSTOP);
      if (round.deed == Deed::throws) throw std::runtime_error("the weights went away");
      if (round.deed == Deed::leaves) return;
    }
    executor.run();
  }
}

void play(const Round& round, Stage& stage) {
  const auto plan_of = [&](std::int64_t size) {
    const Program program =
        make_program(find_operator(round.op), round.ranks, DType::f32, std::vector<std::int64_t>{size, size, size});
    return ProvenPlan::prove(lower(program, Schedule::overlapped(program), testing::small_topology(round.ranks)).plan);
  };
  const ProvenPlan plan = plan_of(24);
  const ProvenPlan other = plan_of(32);
  try {
    Group::spawn(round.ranks, [&](Group& group) {
      Seen& seen = stage.seen[group.rank()];
      try {
        take_part(group, round, plan, other, stage);
      } catch (const std::exception& error) {
        seen.seconds = static_cast<double>(now_ns() - stage.deed_ns) * 1e-9;
        std::strncpy(seen.text, error.what(), sizeof(seen.text) - 1);
        throw;
      }
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error&) {  // what each rank saw is looked at below
  }
}

TEST(RandomFaults, ProcessesEverySurvivorNamesTheRightRankInTime) {
  const char* wanted = std::getenv("TILEWAY_ROUNDS");
  const int rounds = wanted ? std::atoi(wanted) : 15;
  // The launcher's patience with ranks that do not end is this long, too.
  setenv("TILEWAY_DEADLINE_MS", std::to_string(kDeadline.count()).c_str(), 1);
  std::mt19937 random(7);
  void* memory = mmap(nullptr, sizeof(Stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
  };
  const auto files_before = open_files();
  std::array<int, kDeeds> done{};
  double slowest = 0;
  for (int i = 0; i < rounds && !HasFailure(); ++i) {
    Stage& stage = *new (memory) Stage();
    constexpr std::array<const char*, 3> kOps{"gemm_all_reduce", "all_gather_gemm", "gemm_reduce_scatter"};
    const int ranks = 3 + static_cast<int>(random() % 6);
    const Round round{ranks, static_cast<int>(random() % ranks), static_cast<Deed>(i % kDeeds),
                      static_cast<int>(random() % 60), kOps[random() % kOps.size()]};
    play(round, stage);
    ++done[static_cast<std::size_t>(round.deed)];
    for (int rank = 0; rank < ranks; ++rank) {
      const Seen& seen = stage.seen[rank];
      const std::string context = fmt::format(
          "round {}: rank {} of {} {} at run {} of {}; rank {} says '{}' after {:.2f} s", i, round.culprit, ranks,
          kDeedNames[static_cast<std::size_t>(round.deed)], round.at_run, round.op, rank, seen.text, seen.seconds);
      if (rank == round.culprit && round.deed != Deed::other_plan) continue;
      const std::string text = seen.text;
      EXPECT_NE(text.find(fmt::format("rank {}", round.culprit)), std::string::npos) << context;
      if (round.deed == Deed::kill) {
        // Whoever sees it first says how: its parent, or the server whose socket closed.
        EXPECT_TRUE(text.find("ended by signal 9") != std::string::npos || text.find("has died") != std::string::npos)
            << context;
      }
      if (round.deed == Deed::stop) {
        EXPECT_NE(text.find("its process is stopped"), std::string::npos) << context;
      }
      if (round.deed == Deed::throws) {
        EXPECT_NE(text.find("the weights went away"), std::string::npos) << context;
      }
      EXPECT_LT(seen.seconds, std::chrono::duration<double>(kDeadline).count() + 1) << context;
      slowest = std::max(slowest, seen.seconds);
    }
  }
  EXPECT_EQ(open_files(), files_before) << "memory or sockets were left behind";
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a process was left behind";
  munmap(memory, sizeof(Stage));
  unsetenv("TILEWAY_DEADLINE_MS");
  fmt::print("{} rounds:", rounds);
  for (int d = 0; d < kDeeds; ++d) fmt::print(" {} {},", done[d], kDeedNames[d]);
  fmt::print(" the slowest survivor after {:.2f} s, deadline {:.1f} s\n", slowest,
             std::chrono::duration<double>(kDeadline).count());
}

}  // namespace
}  // namespace tileway
