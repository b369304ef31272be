#include "plan/layout.hpp"

#include <algorithm>

namespace tileway {
namespace {

std::size_t aligned(std::size_t bytes) {
  return (bytes + PlanLayout::kAlignment - 1) / PlanLayout::kAlignment * PlanLayout::kAlignment;
}

}  // namespace

PlanLayout::PlanLayout(const Plan& plan, const std::set<BufferId>& elsewhere) : private_bytes(plan.ranks()) {
  std::vector<std::size_t> symmetric(plan.ranks(), kSignalBytes);  // behind the count of runs
  for (const Lane& lane : plan.lanes) {
    place_offset.push_back(symmetric[lane.rank]);
    symmetric[lane.rank] += kPlaceBytes;
    board_bytes = std::max(board_bytes, symmetric[lane.rank]);
  }
  for (const SignalInfo& signal : plan.signals) {
    signal_offset.push_back(symmetric[signal.rank]);
    symmetric[signal.rank] += kSignalBytes;
  }
  for (const Buffer& buffer : plan.buffers) {
    std::size_t& end = buffer.symmetric ? symmetric[buffer.rank] : private_bytes[buffer.rank];
    end = aligned(end);
    buffer_offset.push_back(end);
    if (!elsewhere.contains(static_cast<BufferId>(buffer_offset.size()) - 1) || buffer.symmetric)
      end += slot_bytes(buffer) * buffer.slots;
  }
  symmetric_bytes = aligned(*std::max_element(symmetric.begin(), symmetric.end()));
}

std::size_t PlanLayout::slot_bytes(const Buffer& buffer) {
  const std::size_t bytes = static_cast<std::size_t>(volume(buffer.shape)) * size_of(buffer.dtype);
  return buffer.slots == 1 ? bytes : aligned(bytes);
}

}  // namespace tileway
