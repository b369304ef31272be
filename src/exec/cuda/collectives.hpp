// The communicators behind a plan's collective lanes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/nccl.hpp"
#include "tileway/group.hpp"
#include "tileway/plan.hpp"

namespace tileway::cuda {

// Throws Error (invalid), the same on every rank, where members of a communicator share a GPU: NCCL cannot have that.
// `uuids`: of each rank's GPU.
void require_gpus_of_their_own(const Plan& plan, const std::vector<std::string>& uuids);

// Those of one rank, one a collective lane.
class Collectives {
 public:
  Collectives() = default;
  // Collective over the group: all ranks make the plan's communicators in one order.
  Collectives(const Group& group, const Plan& plan);

  bool empty() const { return by_lane_.empty(); }
  // In the order in which their communicators were made, in which all ranks make theirs.
  const std::vector<std::int32_t>& lanes() const { return lanes_; }
  // Null for other lanes.
  Communicator* of_lane(std::int32_t lane) const;
  void abort() noexcept;

 private:
  std::vector<std::int32_t> lanes_;
  std::map<std::int32_t, std::unique_ptr<Communicator>> by_lane_;
};

}  // namespace tileway::cuda
