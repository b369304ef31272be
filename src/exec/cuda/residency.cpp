#include "exec/cuda/residency.hpp"

#include <map>

namespace tileway::cuda {

Residency& Residency::on(int ordinal) {
  static std::mutex mutex;
  static std::map<int, Residency> all;
  const std::lock_guard lock(mutex);
  return all[ordinal];
}

bool Residency::make_room(const void* owner, int blocks, int capacity, Stream stream) {
  const Driver& cuda = *driver();
  int capturing = 0;
  check(cuda.StreamIsCapturing(stream, &capturing), "looking at a stream");
  if (capturing != 0) return false;
  const std::lock_guard lock(mutex_);
  std::erase_if(runs_, [&](const Run& run) { return cuda.EventQuery(run.end) == 0; });
  int beside = 0;
  for (const Run& run : runs_) beside += run.owner != owner && run.stream != stream ? run.blocks : 0;
  if (beside + blocks <= capacity) return true;
  for (const Run& run : runs_) {
    if (run.owner != owner && run.stream != stream)
      check(cuda.StreamWaitEvent(stream, run.end, 0), "waiting for room on the device");
  }
  return true;
}

void Residency::entered(const Run& run) {
  const std::lock_guard lock(mutex_);
  check(driver()->EventRecord(run.end, run.stream), "ending a run");
  std::erase_if(runs_, [&](const Run& old) { return old.owner == run.owner; });
  runs_.push_back(run);
}

void Residency::forget(const void* owner) {
  const std::lock_guard lock(mutex_);
  std::erase_if(runs_, [&](const Run& run) { return run.owner == owner; });
}

}  // namespace tileway::cuda
