#include "exec/cuda/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tileway/error.hpp"

namespace tileway::cuda {
namespace {

// The lanes of each communicator, in the order of its members' ranks.
std::vector<std::vector<std::int32_t>> communicators_of(const Plan& plan) {
  std::map<std::int32_t, std::set<std::int32_t>> lanes_of_joint;
  for (const Task& task : plan.tasks) {
    if (task.joint != -1) lanes_of_joint[task.joint].insert(task.lane);
  }
  std::set<std::vector<std::int32_t>> all;
  for (const auto& [joint, lanes] : lanes_of_joint) {
    std::vector<std::int32_t> list(lanes.begin(), lanes.end());
    std::sort(list.begin(), list.end(),
              [&](std::int32_t a, std::int32_t b) { return plan.lanes[a].rank < plan.lanes[b].rank; });
    all.insert(std::move(list));
  }
  return {all.begin(), all.end()};
}

}  // namespace

void require_gpus_of_their_own(const Plan& plan, const std::vector<std::string>& uuids) {
  for (const std::vector<std::int32_t>& lanes : communicators_of(plan)) {
    std::map<std::string, std::int32_t> owner;
    for (std::int32_t lane : lanes) {
      const std::int32_t rank = plan.lanes[lane].rank;
      const auto [found, added] = owner.emplace(uuids[rank], rank);
      TW_REQUIRE(added, ErrorKind::invalid, .where = "the collectives of plan " + plan.name,
                 .what = "NCCL does not take ranks that share a GPU", .expected = "a GPU for each rank",
                 .got = fmt::format("{} for ranks {} and {}", uuids[rank], found->second, rank),
                 .hint = "Choose a schedule without collectives, or fewer ranks");
    }
  }
}

Collectives::Collectives(const Group& group, const Plan& plan) {
  for (const std::vector<std::int32_t>& lanes : communicators_of(plan)) {
    std::vector<int> ranks;
    std::int32_t own = -1;
    for (std::int32_t lane : lanes) {
      ranks.push_back(plan.lanes[lane].rank);
      if (ranks.back() == group.rank()) own = lane;
    }
    if (own == -1) continue;
    lanes_.push_back(own);
    by_lane_.emplace(own, std::make_unique<Communicator>(Group(group).subgroup(ranks)));
  }
}

Communicator* Collectives::of_lane(std::int32_t lane) const {
  const auto found = by_lane_.find(lane);
  return found == by_lane_.end() ? nullptr : found->second.get();
}

void Collectives::abort() noexcept {
  for (auto& [lane, communicator] : by_lane_) communicator->abort();
}

}  // namespace tileway::cuda
