#include "exec/cuda/fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "exec/cuda/collectives.hpp"
#include "runtime/cuda/cublaslt.hpp"
#include "tileway/error.hpp"

namespace tileway::cuda {
namespace {

// What a rank wants of its GPU: resident blocks, of which the GPU can hold so many.
struct Wanted {
  std::string uuid;
  int blocks = 0;
  int capacity = 0;
  int multiprocessors = 0;
};

// What all ranks on a GPU want of it.
struct Demand {
  explicit Demand(const Wanted& wanted) : capacity(wanted.capacity), multiprocessors(wanted.multiprocessors) {}
  int free() const { return multiprocessors - blocks - collective_blocks; }
  int needed() const { return blocks + collective_blocks * (capacity / multiprocessors); }

  int capacity;  // of the rank with least
  int multiprocessors;
  int blocks = 0;
  int collective_blocks = 0;
  int ranks = 0;
  bool multiplies = false;  // for a library lane
};

int lanes_of(const Plan& plan, int rank, Engine engine) {
  return static_cast<int>(std::count_if(plan.lanes.begin(), plan.lanes.end(),
                                        [&](const Lane& lane) { return lane.rank == rank && lane.engine == engine; }));
}

}  // namespace

Gpu choose_gpu(const Group& group, int ordinal) {
  const std::vector<Gpu> found = gpus();
  TW_REQUIRE(!found.empty(), ErrorKind::system, .where = "CUDA", .what = why_not(),
             .hint = "`tileway doctor` says what is missing; the host executor needs no GPU");
  const int count = static_cast<int>(found.size());
  const int chosen = ordinal < 0 ? group.world_rank() % count : ordinal;
  TW_REQUIRE(chosen < count, ErrorKind::invalid, .where = "CUDA", .what = "there is no such GPU",
             .expected = fmt::format("0 to {}", count - 1), .got = std::to_string(chosen));
  return found[chosen];
}

Fit require_fit(Group& group, const Plan& plan, const Gpu& gpu, int blocks, int capacity) {
  std::vector<Wanted> all;  // by rank
  for (const std::string& text : group.all_gather(
           fmt::format("{} {} {} {}", gpu.uuid, blocks, capacity, gpu.multiprocessors), "fitting lanes to GPUs")) {
    Wanted& wanted = all.emplace_back();
    std::istringstream(text) >> wanted.uuid >> wanted.blocks >> wanted.capacity >> wanted.multiprocessors;
  }
  for (const Lane& lane : plan.lanes) {
    if (lane.engine != Engine::copy) continue;
    for (TaskId id : lane.tasks) {
      for (const Access& write : plan.tasks[id].writes) {
        const int to = plan.buffers[write.buffer].rank;
        TW_REQUIRE(all[to].uuid != all[lane.rank].uuid, ErrorKind::invalid, .where = plan.name,
                   .what = fmt::format("a copy engine cannot serve ranks {} and {}, which share a GPU", lane.rank, to),
                   .hint = "Make the plan for a topology with copy=0, or use a GPU for each rank");
      }
    }
  }
  std::vector<std::string> uuids;
  for (const Wanted& wanted : all) uuids.push_back(wanted.uuid);
  require_gpus_of_their_own(plan, uuids);
  std::map<std::string, Demand> devices;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    const Wanted& wanted = all[rank];
    Demand& device = devices.try_emplace(wanted.uuid, wanted).first->second;
    ++device.ranks;
    device.blocks += wanted.blocks;
    device.collective_blocks += lanes_of(plan, rank, Engine::collective) * kCollectiveBlocks;
    device.capacity = std::min(device.capacity, wanted.capacity);
    device.multiplies = device.multiplies || lanes_of(plan, rank, Engine::library) > 0;
  }
  for (const auto& [uuid, device] : devices) {
    const int needed = device.needed();
    TW_REQUIRE(
        needed <= device.capacity, ErrorKind::invalid, .where = "the lanes of all ranks on " + uuid,
        .what = "they do not fit the GPU at once, and what does not run cannot be waited for",
        .expected = fmt::format("at most {}", device.capacity), .got = std::to_string(needed),
        .hint = fmt::format("Make the plan for a topology with fewer lanes; a collective lane takes the room of {} "
                            "multiprocessors",
                            kCollectiveBlocks));
    TW_REQUIRE(!device.multiplies || device.free() >= kLibraryMultiprocessors, ErrorKind::invalid,
               .where = "the lanes of all ranks on " + uuid,
               .what = "they leave the library of matrix products too few multiprocessors",
               .expected = fmt::format("{} or more", kLibraryMultiprocessors),
               .got = fmt::format("{} of {}", std::max(0, device.free()), device.multiprocessors),
               .hint = "Make the plan for a topology with fewer lanes: lanes=16,library=1");
  }
  const Demand& own = devices.at(gpu.uuid);
  return {own.ranks, own.needed(), own.free()};
}

}  // namespace tileway::cuda
