#include "tileway/plan.hpp"

#include <algorithm>

namespace tileway {

std::int64_t Plan::bytes_sent(const Task& task) const {
  const auto bytes_of = [&](const Access& access) {
    return access.box.volume() * static_cast<std::int64_t>(size_of(buffers[access.buffer].dtype));
  };
  std::int64_t bytes = 0;
  if (task.joint == -1) {
    for (const Access& access : task.writes) bytes += buffers[access.buffer].rank != task.rank ? bytes_of(access) : 0;
    return bytes;
  }
  for (const Access& access : task.reads) bytes += bytes_of(access);
  const Body::Kind kind = bodies[task.body].kind;
  if (kind == Body::Kind::exchange) return bytes;
  const std::int64_t members =
      std::count_if(tasks.begin(), tasks.end(), [&](const Task& other) { return other.joint == task.joint; });
  return bytes * (members - 1) / members * (kind == Body::Kind::all_reduce ? 2 : 1);
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
