// A lane whose engine is a stream: the copy engine, a collective library or a library of matrix products does what its
// tasks say. See device/tileway/lane.cuh for the block that waits and notifies on its behalf.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "exec/cuda/table.hpp"
#include "runtime/cuda/cublaslt.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/nccl.hpp"

namespace tileway::cuda {

class StreamLane {
 public:
  // `gates`: where the gates of the table's tasks lie. `communicator`: of a collective lane; it outlives this.
  // `multiprocessors`: how many the resident blocks leave to a library lane. Throws Error (invalid) for a task that the
  // lane's engine cannot do.
  StreamLane(const Plan& plan, const Table& table, const LaneRow& lane, Address gates, Communicator* communicator,
             int multiprocessors);
  StreamLane(StreamLane&&) noexcept;
  StreamLane& operator=(StreamLane&&) = delete;
  ~StreamLane();

  // Does all copies and products once, so that nothing that they need is loaded beside a waiting stream.
  void rehearse() const;
  // Puts one run's tasks behind `begin` and has `after` wait for their end. The kernel of the run has been enqueued.
  void enqueue(Event begin, Stream after);
  // Puts the lane's collectives in its stream, before the first run: a library connects members, loads kernels and
  // allocates when it meets a call of a kind and size for the first time, and beside a kernel that waits it cannot. All
  // of them, since members cannot tell from their own part which calls are alike. What it computes means nothing.
  void rehearse_calls();
  Stream stream() const { return stream_; }

 private:
  struct Call {  // of a collective library; as the body counts its reads and writes
    const Body* body;
    DType dtype;
    std::vector<Elements> give;
    std::vector<Elements> take;
  };
  struct Step {
    Address gate;
    std::vector<Copy2D> copies;
    std::vector<std::size_t> products;  // as the multiplier numbers them
    std::optional<Call> call;
  };
  void copy(const Copy2D& copy) const;
  void make(const Call& call);

  // What a step does that needs no other rank.
  void work(const Step& step) const;

  Communicator* communicator_;
  std::unique_ptr<Multiplier> multiplier_;  // of a library lane
  std::vector<Step> steps_;
  Stream stream_ = nullptr;
  Event end_ = nullptr;
};

}  // namespace tileway::cuda
