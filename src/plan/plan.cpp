#include "tileway/plan.hpp"

#include <algorithm>

namespace tileway {

std::int64_t Plan::bytes_sent(const Task& task) const {
  const bool exchanges = bodies[task.body].kind == Body::Kind::exchange;
  std::int64_t bytes = 0;
  for (const Access& access : exchanges ? task.reads : task.writes) {
    const Buffer& buffer = buffers[access.buffer];
    if (exchanges || buffer.rank != task.rank)
      bytes += access.box.volume() * static_cast<std::int64_t>(size_of(buffer.dtype));
  }
  return bytes;
}

bool Plan::reaches_peers() const {
  return std::any_of(tasks.begin(), tasks.end(), [&](const Task& task) {
    const auto away = [&](const Access& access) { return buffers[access.buffer].rank != task.rank; };
    return std::any_of(task.reads.begin(), task.reads.end(), away) ||
           std::any_of(task.writes.begin(), task.writes.end(), away) ||
           std::any_of(task.notifies.begin(), task.notifies.end(),
                       [&](const Notify& notify) { return signals[notify.signal].rank != task.rank; });
  });
}

}  // namespace tileway
