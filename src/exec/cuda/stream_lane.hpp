// A lane whose engine is a stream: the copy engine moves what its tasks say. See device/tileway/lane.cuh for the block
// that waits and notifies on its behalf.
#pragma once

#include <vector>

#include "exec/cuda/table.hpp"
#include "runtime/cuda/driver.hpp"

namespace tileway::cuda {

class StreamLane {
 public:
  // `gates`: where the gates of the table's tasks lie. Throws Error (invalid) for a task that no stream can do.
  StreamLane(const Plan& plan, const Table& table, const LaneRow& lane, Address gates);
  StreamLane(StreamLane&&) noexcept;
  StreamLane& operator=(StreamLane&&) = delete;
  ~StreamLane();

  // Does all copies once, so that nothing that the driver needs for them is loaded beside a waiting stream.
  void rehearse() const;
  // Puts one run's tasks behind `begin` and has `after` wait for their end. The kernel of the run has been enqueued.
  void enqueue(Event begin, Stream after);

 private:
  struct Step {
    Address gate;
    std::vector<Copy2D> copies;
  };
  void copy(const Copy2D& copy) const;
  std::vector<Step> steps_;
  Stream stream_ = nullptr;
  Event end_ = nullptr;
};

}  // namespace tileway::cuda
