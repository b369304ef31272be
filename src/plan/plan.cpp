#include "tileway/plan.hpp"

namespace tileway {

std::int64_t Plan::bytes_sent(const Task& task) const {
  std::int64_t bytes = 0;
  for (const Access& write : task.writes) {
    const Buffer& target = buffers[write.buffer];
    if (target.rank != task.rank) bytes += write.box.volume() * static_cast<std::int64_t>(size_of(target.dtype));
  }
  return bytes;
}

}  // namespace tileway
