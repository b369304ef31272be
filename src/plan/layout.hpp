// Where the buffers and signals of a plan lie in memory: the one place that sizes and addresses come from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "tileway/plan.hpp"

namespace tileway {

// Each rank has a private and a symmetric region. The symmetric one begins with the rank's board: eight bytes for the
// number of runs that it has begun and a place for each of its lanes, which peers read when they wait in vain. The
// rank's signals follow, eight bytes each; every buffer begins at a multiple of kAlignment.
struct PlanLayout {
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kSignalBytes = 8;
  static constexpr std::size_t kPlaceBytes = 16;

  // Private buffers that lie `elsewhere`, in memory of the caller's, take no room.
  explicit PlanLayout(const Plan& plan, const std::set<BufferId>& elsewhere = {});
  // From one slot of a buffer to the next.
  static std::size_t slot_bytes(const Buffer& buffer);

  std::vector<std::size_t> buffer_offset;  // by BufferId, in the region of its kind on its rank
  std::vector<std::size_t> signal_offset;  // by SignalId, in the symmetric region of its rank
  std::vector<std::size_t> place_offset;   // by lane, in the symmetric region of its rank
  std::vector<std::size_t> private_bytes;  // by rank
  std::size_t board_bytes = kSignalBytes;  // the largest any rank needs
  std::size_t symmetric_bytes = 0;         // the largest any rank needs: symmetric memory has one size
};

}  // namespace tileway
