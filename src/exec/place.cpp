#include "tileway/place.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/nccl.hpp"
#include "tileway/error.hpp"

namespace tileway {

Place choose_place(std::string_view executor, int ranks) {
  TW_REQUIRE(executor == "auto" || executor == "host" || executor == "cuda", ErrorKind::invalid, .where = "executor",
             .what = "unknown name", .expected = "auto, host or cuda", .got = std::string(executor));
  if (executor == "host") return {};
  const cuda::Fleet fleet = cuda::fleet();
  if (executor == "auto" && fleet.gpus < ranks) return {};
  TW_REQUIRE(fleet.gpus > 0, ErrorKind::invalid, .where = "executor", .what = "there is no GPU here",
             .expected = "auto or host", .got = std::string(executor), .hint = "`tileway doctor` says what is missing");
  return {true, fleet.gpus, fleet.multiprocessors, fleet.linked};
}

Topology topology_of(const Place& place, int ranks) {
  if (!place.cuda) return Topology::host(ranks);
  Topology topology = Topology::gpus(ranks);
  const int sharing = (ranks + place.gpus - 1) / place.gpus;
  topology.lanes = std::max(1, place.multiprocessors / sharing);
  if (sharing > 1) topology.copy = 0;  // there is no link to copy over
  if (!place.linked) {
    topology.copy = 0;
    topology.collective = 1;
    topology.lanes = std::max(1, topology.lanes - cuda::kCollectiveBlocks);
  }
  return topology;
}

std::string_view schedule_of(const Place& place) { return place.linked ? "overlapped" : "collective"; }

void start_ranks(const Place& place, int ranks, const std::function<void(Group&)>& body) {
  if (!place.cuda || ranks <= place.gpus) return Group::spawn(ranks, body);
  // In a process of their own, which alone opens the driver.
  Group::spawn(1, [&](Group&) { Group::threads(ranks, body); });
}

std::unique_ptr<Executor> make_executor(const Place& place, Group& group, ProvenPlan plan, bool trace) {
  if (!place.cuda) return std::make_unique<HostExecutor>(group, std::move(plan), HostExecutor::Options{.trace = trace});
  return std::make_unique<CudaExecutor>(group, std::move(plan), CudaExecutor::Options{.trace = trace});
}

}  // namespace tileway
