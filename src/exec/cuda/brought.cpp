#include "exec/cuda/brought.hpp"

#include <fmt/format.h>

#include <algorithm>
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

BroughtCopies copies_of(const Addresses& addresses) {
  BroughtCopies copies;
  for (const auto& [id, address] : addresses.brought) {
    const Buffer& buffer = addresses.plan.buffers[id];
    if (!buffer.symmetric || volume(buffer.shape) == 0) continue;
    const Plan& plan = addresses.plan;
    const auto here = [&, id = id](const auto& one) { return one.buffer == id; };
    const bool written = std::any_of(plan.tasks.begin(), plan.tasks.end(), [&](const Task& task) {
      return std::any_of(task.writes.begin(), task.writes.end(), here);
    });
    const auto bytes = static_cast<u64>(volume(buffer.shape)) * size_of(buffer.dtype);
    const Address own = addresses.buffer(id);
    if (std::any_of(plan.inputs.begin(), plan.inputs.end(), here)) copies.in.push_back({own, address, bytes});
    if (written) copies.out.push_back({address, own, bytes});
  }
  return copies;
}

}  // namespace tileway::cuda
