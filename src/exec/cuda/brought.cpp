#include "exec/cuda/brought.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "tileway/error.hpp"

namespace tileway::cuda {

std::set<BufferId> buffers_of(const Brought& brought) {
  std::set<BufferId> buffers;
  for (const auto& [id, address] : brought) buffers.insert(id);
  return buffers;
}

void check_brought(const Plan& plan, BufferId id, Address address, const Gpu& gpu) {
  constexpr int kDeviceOrdinal = 9;  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
  const Buffer& buffer = plan.buffers[id];
  const auto refuse = [&](const char* what, std::string expected, std::string got) {
    throw Error(ErrorKind::invalid,
                {.where = fmt::format("{}, memory for {} of rank {}", plan.name, buffer.name, buffer.rank),
                 .what = what,
                 .expected = std::move(expected),
                 .got = std::move(got)});
  };
  if (buffer.slots != 1)
    refuse("its place changes from run to run", "the executor's own memory", "memory of the caller's");
  if (volume(buffer.shape) > 0) {
    int ordinal = -1;
    if (driver()->PointerGetAttribute(&ordinal, kDeviceOrdinal, address) != 0) ordinal = -1;
    if (ordinal != gpu.ordinal)
      refuse("it is not memory of the rank's GPU", fmt::format("an address of GPU {}", gpu.ordinal),
             ordinal < 0 ? fmt::format("{:#x}, an address of none", address) : fmt::format("one of GPU {}", ordinal));
  }
  if (address % size_of(buffer.dtype) != 0)
    refuse("it begins between two elements", fmt::format("a multiple of {}", size_of(buffer.dtype)),
           fmt::format("{:#x}", address));
}

void copy_brought(const Addresses& addresses, const std::vector<Plan::Binding>& bindings, bool in, Stream stream) {
  for (const Plan::Binding& binding : bindings) {
    const Buffer& buffer = addresses.plan.buffers[binding.buffer];
    const auto found = addresses.brought.find(binding.buffer);
    if (found == addresses.brought.end() || !buffer.symmetric || volume(buffer.shape) == 0) continue;
    const Address own = addresses.buffer(binding.buffer);
    check(driver()->MemcpyAsync(in ? own : found->second, in ? found->second : own, PlanLayout::slot_bytes(buffer),
                                stream),
          "copying between the caller's memory and what peers use");
  }
}

}  // namespace tileway::cuda
