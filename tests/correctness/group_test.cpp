// Groups: ranks as processes and as threads find each other, share memory and agree.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tileway/error.hpp"
#include "tileway/group.hpp"

namespace tileway {
namespace {

using Launch = void (*)(int, const std::function<void(Group&)>&);

// Throws, so that a failure in a rank's process reaches the test.
void require(bool holds, const char* what) {
  if (!holds) throw Error(ErrorKind::system, {.where = "test", .what = what});
}

std::size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

std::size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:tileway") != std::string::npos;
  return count;
}

void peers_see_what_was_written(Launch launch) {
  for (int size : {1, 2, 3, 5, 8}) {
    launch(size, [](Group& group) {
      const SymmetricMemory memory = group.allocate(1001);
      require(memory.on(0).size() == 1001, "size");
      // Rank r writes its number into place r of everyone's memory.
      for (int to = 0; to < group.size(); ++to) memory.on(to)[group.rank()] = std::byte(group.rank() + 1);
      group.barrier("written");
      for (int from = 0; from < group.size(); ++from)
        require(memory.on(group.rank())[from] == std::byte(from + 1), "a byte");
      require(memory.on(group.rank())[group.size()] == std::byte{0}, "zeroed");
    });
  }
}

TEST(Group, ProcessesSeeWhatPeersWrote) { peers_see_what_was_written(Group::spawn); }
TEST(Group, ThreadsSeeWhatPeersWrote) { peers_see_what_was_written(Group::threads); }

void values_are_gathered_by_rank(Launch launch) {
  launch(5, [](Group& group) {
    for (int round = 0; round < 20; ++round) {
      const std::string mine(static_cast<std::size_t>(group.rank() * 1000), static_cast<char>('a' + round));
      const auto all = group.all_gather(mine, "round");
      for (int rank = 0; rank < 5; ++rank)
        require(all[rank] == std::string(rank * 1000, static_cast<char>('a' + round)), "value");
    }
  });
}

TEST(Group, ProcessesGatherValuesByRank) { values_are_gathered_by_rank(Group::spawn); }
TEST(Group, ThreadsGatherValuesByRank) { values_are_gathered_by_rank(Group::threads); }

void a_subgroup_that_excludes_a_rank_does_not_disturb_the_world(Launch launch) {
  launch(3, [](Group& world) {
    for (int round = 0; round < 3; ++round) {
      if (world.rank() != 2) {
        Group pair = world.subgroup(std::vector<int>{0, 1});
        require(pair.size() == 2 && pair.rank() == world.rank(), "ranks of the pair");
        require(pair.all_gather(std::to_string(world.rank()), "pair")[1] == "1", "pair");
      }
      require(world.all_gather(std::to_string(world.rank()), "world")[2] == "2", "world");
    }
    if (world.rank() == 0) return;
    Group other = world.subgroup(std::vector<int>{1, 2});
    Group same = world.subgroup(std::vector<int>{1, 2});  // never shares a meeting with the first
    require(other.world_rank() == world.rank() && other.rank() == world.rank() - 1, "a rank is not where it was");
    const SymmetricMemory a = other.allocate(64);
    const SymmetricMemory b = same.allocate(64);
    a.on(other.rank())[0] = std::byte{1};
    require(b.on(same.rank())[0] == std::byte{0}, "memories are apart");
    same.barrier("b");
    other.barrier("a");
  });
}

TEST(Group, ProcessesASubgroupThatExcludesARankDoesNotDisturbTheWorld) {
  a_subgroup_that_excludes_a_rank_does_not_disturb_the_world(Group::spawn);
}
TEST(Group, ThreadsASubgroupThatExcludesARankDoesNotDisturbTheWorld) {
  a_subgroup_that_excludes_a_rank_does_not_disturb_the_world(Group::threads);
}

TEST(Group, ThreadsTenThousandAllocationsLeakNothing) {
  const std::size_t files = open_files();
  const std::size_t mappings = shared_mappings();
  Group::threads(2, [](Group& group) {
    for (int round = 0; round < 10000; ++round) {
      const SymmetricMemory memory = group.allocate(1 + static_cast<std::size_t>(round) * 7 % 20000);
      memory.on(group.rank())[0] = std::byte{1};
    }
  });
  EXPECT_EQ(open_files(), files);
  EXPECT_EQ(shared_mappings(), mappings);
}

TEST(Group, ProcessesThousandsOfAllocationsLeakNothing) {
  const std::size_t files = open_files();
  Group::spawn(3, [](Group& group) {
    group.allocate(100);
    const std::size_t before = open_files();
    for (int round = 0; round < 2000; ++round) group.allocate(100 + static_cast<std::size_t>(round));
    require(open_files() == before && shared_mappings() == 0, "nothing is left open in a rank");
  });
  EXPECT_EQ(open_files(), files);
}

// Stands in for torchrun: processes with its variables, children of one launcher.
TEST(Group, ProcessesUnderALauncherTakeTheirPlaces) {
  constexpr int kRanks = 3;
  char directory[] = "/tmp/tileway-test-XXXXXX";
  ASSERT_NE(mkdtemp(directory), nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      setenv("RANK", std::to_string(rank).c_str(), 1);
      setenv("WORLD_SIZE", std::to_string(kRanks).c_str(), 1);
      setenv("LOCAL_WORLD_SIZE", std::to_string(kRanks).c_str(), 1);
      setenv("MASTER_ADDR", "localhost", 1);
      setenv("MASTER_PORT", "29500", 1);
      setenv("XDG_RUNTIME_DIR", directory, 1);
      int status = 1;
      try {
        Group group = Group::from_environment();
        const auto all = group.all_gather(std::to_string(rank), "ranks");
        const SymmetricMemory memory = group.allocate(8);
        memory.on((rank + 1) % kRanks)[0] = std::byte(rank);
        group.barrier("written");
        const bool right = all[kRanks - 1] == std::to_string(kRanks - 1) &&
                           memory.on(rank)[0] == std::byte((rank + kRanks - 1) % kRanks);
        status = right ? 0 : 1;
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
      _exit(status);
    }
    children.push_back(pid);
  }
  for (pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  // The private directory is empty again.
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory))
    EXPECT_TRUE(entry.is_directory()) << entry.path();
  std::filesystem::remove_all(directory);
}

TEST(Group, RanksOnSeveralMachinesAreRefused) {
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "4", 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  try {
    Group::from_environment();
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("several machines"), std::string::npos) << error.what();
  }
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"}) unsetenv(name);
}

}  // namespace
}  // namespace tileway
