// Runs of this process that are on a device at once. Whatever spins is resident: where runs in several streams do not
// fit the device together, the later one begins when the earlier ones have ended. Later is what is enqueued later;
// ranks enqueue runs that may not fit together in one order, as they do calls of a collective library. Of captured runs
// nothing is known here: whoever replays graphs beside other runs sees to it that they fit, or orders them.
#pragma once

#include <mutex>
#include <vector>

#include "runtime/cuda/driver.hpp"

namespace tileway::cuda {

class Residency {
 public:
  // Of a device, as this process counts them.
  static Residency& on(int ordinal);

  struct Run {
    const void* owner;  // has one run in flight at most
    int blocks;         // that are resident for it
    Stream stream;
    Event end;  // recorded in the stream behind the run
  };
  // Before a run is enqueued: has its stream wait for those of others in other streams, unless all fit `capacity`
  // blocks. Does nothing in a stream that captures; returns false then.
  bool make_room(const void* owner, int blocks, int capacity, Stream stream);
  // Behind a run that was enqueued: records its end.
  void entered(const Run& run);
  void forget(const void* owner);

 private:
  std::mutex mutex_;
  std::vector<Run> runs_;
};

}  // namespace tileway::cuda
