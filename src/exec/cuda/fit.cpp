#include "exec/cuda/fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "exec/cuda/collectives.hpp"
#include "tileway/error.hpp"

namespace tileway::cuda {
namespace {

std::string gpu_of(const std::string& text) { return text.substr(0, text.find(' ')); }

}  // namespace

Gpu choose_gpu(const Group& group, int ordinal) {
  const std::vector<Gpu> found = gpus();
  TW_REQUIRE(!found.empty(), ErrorKind::system, .where = "CUDA", .what = why_not(),
             .hint = "`tileway doctor` says what is missing; the host executor needs no GPU");
  const int count = static_cast<int>(found.size());
  const int chosen = ordinal < 0 ? group.rank() % count : ordinal;
  TW_REQUIRE(chosen < count, ErrorKind::invalid, .where = "CUDA", .what = "there is no such GPU",
             .expected = fmt::format("0 to {}", count - 1), .got = std::to_string(chosen));
  return found[chosen];
}

void require_fit(Group& group, const Plan& plan, const Gpu& gpu, int blocks, int capacity) {
  blocks += collective_lanes(plan, group.rank()) * kCollectiveBlocks * (capacity / gpu.multiprocessors);
  const std::vector<std::string> all =
      group.all_gather(fmt::format("{} {} {}", gpu.uuid, blocks, capacity), "fitting lanes to GPUs");
  for (const Lane& lane : plan.lanes) {
    if (lane.engine != Engine::copy) continue;
    for (TaskId id : lane.tasks) {
      for (const Access& write : plan.tasks[id].writes) {
        const int to = plan.buffers[write.buffer].rank;
        TW_REQUIRE(gpu_of(all[to]) != gpu_of(all[lane.rank]), ErrorKind::invalid, .where = plan.name,
                   .what = fmt::format("a copy engine cannot serve ranks {} and {}, which share a GPU", lane.rank, to),
                   .hint = "Make the plan for a topology with copy=0, or use a GPU for each rank");
      }
    }
  }
  std::vector<std::string> uuids;
  for (const std::string& text : all) uuids.push_back(gpu_of(text));
  require_gpus_of_their_own(plan, uuids);
  std::map<std::string, std::pair<int, int>> devices;  // uuid: blocks of all ranks, room of the rank with least
  for (const std::string& text : all) {
    const std::size_t first = text.find(' ');
    const std::size_t second = text.find(' ', first + 1);
    const int wanted = std::stoi(text.substr(first + 1, second - first - 1));
    const int room = std::stoi(text.substr(second + 1));
    auto [found, added] = devices.try_emplace(text.substr(0, first), 0, room);
    found->second.first += wanted;
    found->second.second = std::min(found->second.second, room);
  }
  for (const auto& [uuid, need] : devices) {
    TW_REQUIRE(
        need.first <= need.second, ErrorKind::invalid, .where = "the lanes of all ranks on " + uuid,
        .what = "they do not fit the GPU at once, and what does not run cannot be waited for",
        .expected = fmt::format("at most {}", need.second), .got = std::to_string(need.first),
        .hint = fmt::format("Make the plan for a topology with fewer lanes; a collective lane takes the room of {} "
                            "multiprocessors",
                            kCollectiveBlocks));
  }
}

}  // namespace tileway::cuda
