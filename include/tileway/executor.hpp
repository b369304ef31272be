// What runs plans: on CPU ranks (host), on GPUs (cuda).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tileway/array.hpp"
#include "tileway/group.hpp"
#include "tileway/plan.hpp"
#include "tileway/trace.hpp"
#include "tileway/verify.hpp"

struct CUstream_st;  // of the CUDA driver

namespace tileway {

// One rank's part of a plan in execution. Rank i of the plan is rank i of the group.
//
// Construction is collective: the ranks compare program, dtypes, shapes, schedule, topology and the plan itself, and
// throw the same Error (mismatch) everywhere if they differ; then memory is allocated and exchanged. Only a plan that
// was proven is taken; what an executor has no engine for it refuses (invalid). Between runs the caller owns inputs and
// outputs. A run need not be synchronised with other ranks' runs.
class Executor {
 public:
  virtual ~Executor() = default;

  // Copies this rank's part in. Throws Error (invalid) for an unknown name, a wrong dtype or a wrong shape.
  void set_input(const std::string& name, const Array& part);
  // A copy of this rank's part of an output, or of an input (for what a program updates in place).
  Array get(const std::string& name) const;
  // Whether this rank holds a part of the tensor: it is not in every group.
  bool holds(const std::string& name) const { return binding(name) >= 0; }

  // Runs the plan once and returns when this rank's part is done. Throws Error (invalid) for data out of range, Error
  // (lost) when a rank has died or failed, or a wait has passed the group's deadline; after that the executor only
  // throws.
  virtual void run() = 0;
  // How long each of `count` runs takes, in microseconds, after some to warm up. Collective. On the host ranks begin
  // each run together and look at their own clock; on GPUs a captured run is replayed, timed by the device, and ranks
  // run freely: what one waits for the other is part of its time.
  virtual std::vector<double> time_runs(int count) = 0;
  // The last run's events on this rank, in order of lanes. Empty unless the executor was made to trace.
  virtual const std::vector<TraceEvent>& trace() const = 0;

  const Plan& plan() const { return plan_->plan(); }

 protected:
  Executor(int rank, ProvenPlan plan) : plan_(std::make_shared<const ProvenPlan>(std::move(plan))), rank_(rank) {}
  Executor(Executor&&) = default;
  Executor& operator=(Executor&&) = default;

  // Moves a buffer's bytes in, to the slot of the next run, and out, from that of the last one.
  virtual void write(BufferId buffer, std::span<const std::byte> bytes) = 0;
  virtual void read(BufferId buffer, std::span<std::byte> bytes) const = 0;
  // -1 where this rank holds none of that name.
  BufferId binding(const std::string& name) const;
  // Throws Error (invalid) instead.
  BufferId require_binding(const std::string& name) const;

  const std::shared_ptr<const ProvenPlan>& proven() const { return plan_; }
  int rank() const { return rank_; }

 private:
  std::shared_ptr<const ProvenPlan> plan_;
  int rank_;
};

// On CPU ranks: each lane is a thread, tasks run in the order of the lane, signals are counters in shared memory. Joint
// tasks, accumulates and shared buffers are refused: the host has no engine for them.
class HostExecutor final : public Executor {
 public:
  struct Options {
    double link_gb_s = 0;  // slows every transfer to a peer to this rate; 0: as fast as memory is
    bool trace = false;
  };

  HostExecutor(Group& group, ProvenPlan plan, Options options);
  HostExecutor(Group& group, ProvenPlan plan) : HostExecutor(group, std::move(plan), Options{}) {}
  HostExecutor(HostExecutor&&) noexcept;
  HostExecutor& operator=(HostExecutor&&) noexcept;
  ~HostExecutor() override;

  void run() override;
  std::vector<double> time_runs(int count) override;
  const std::vector<TraceEvent>& trace() const override;

 private:
  void write(BufferId buffer, std::span<const std::byte> bytes) override;
  void read(BufferId buffer, std::span<std::byte> bytes) const override;

  class State;
  std::unique_ptr<State> state_;
};

// On GPUs: a run is one persistent kernel, compiled when the executor is made, whose resident blocks are the compute
// lanes and move from task to task through the very table that was proven, beside streams for the other engines.
// Every rank has a GPU; several ranks may share one as threads of one process, but not where they call a collective
// library together: joint tasks are calls of NCCL, a communicator a collective lane, made and rehearsed when the
// executor is made. See docs/CUDA.md.
class CudaExecutor final : public Executor {
 public:
  using Stream = CUstream_st*;    // a cudaStream_t or CUstream of the device
  using Address = std::uint64_t;  // on the device
  struct Options {
    int device = -1;  // as this process counts its GPUs; -1: its world rank modulo their number
    bool trace = false;
    std::int64_t delay_ns = 0;  // for tests: every task begins up to so much later, at random
    // Where this rank's parts of some inputs and outputs lie: memory of the device that the caller has and keeps,
    // dense, row-major, at any multiple of the element's size; an executor's address() for the next one's input, for
    // example. What peers write is kept in the executor's own memory and copied there at the end of each run. Products
    // are loaded by TMA only where their operands begin at multiples of 16 bytes. Ranks may choose differently.
    std::map<std::string, Address> memory{};
  };

  // Throws Error (system) where there is no GPU, no NVRTC, no NCCL for a plan with joints, no cuBLASLt for one with
  // library lanes or no way to a peer's memory, and Error (invalid) where the lanes of all ranks on a GPU, and what
  // NCCL runs beside them, do not fit it at once or leave cuBLASLt too little, it cannot do a product, or what
  // Options::memory names is no part of this rank's or cannot lie there. May take some seconds where kernels are not in
  // the cache.
  CudaExecutor(Group& group, ProvenPlan plan, Options options);
  CudaExecutor(Group& group, ProvenPlan plan) : CudaExecutor(group, std::move(plan), Options{}) {}
  CudaExecutor(CudaExecutor&&) noexcept;
  CudaExecutor& operator=(CudaExecutor&&) noexcept;
  ~CudaExecutor() override;

  void run() override;
  std::vector<double> time_runs(int count) override;
  const std::vector<TraceEvent>& trace() const override;

  // Puts a run in the stream, after what is in it, and returns at once; allocates nothing and waits for nothing. The
  // stream may be capturing: the graph can be replayed any number of times, and where the plan has joints it is
  // destroyed before the executor. Two runs of one executor must not be in flight at once; those of several may, in
  // several streams. Where they do not fit the GPU together, they follow each other in the order in which they are
  // enqueued, which is then the same on every rank. That holds where each rank has a GPU; else, and for graphs that are
  // replayed beside other runs, the caller sees to it that they fit or orders them. Ranks that share a GPU have
  // all that they need before the first of them launches: making streams, graphs or memory, or loading kernels, may
  // wait for all that runs in the context. Inputs and outputs are read and written where address() says.
  void enqueue(Stream stream);
  // Waits until everything enqueued in the stream has ended. Throws as run() does for what went wrong in it. Where the
  // plan has joints nothing else ends a stream that waits for a lost rank, and no result is good before this returns.
  void synchronize(Stream stream);
  // Where this rank's part of an input or output lies on its device: dense, row-major. Throws Error (invalid) for an
  // unknown name, or one whose place changes from run to run (Buffer::slots).
  Address address(const std::string& name) const;

  // From the next run on the part lies at `address`, as if Options::memory had said so. No run is in flight meanwhile,
  // and what was captured before is captured anew. Throws Error (invalid) as the constructor does, and where products
  // are loaded by TMA and the address is no multiple of 16, or the plan has library lanes.
  void bind(const std::string& name, Address address);

  // The fingerprint of the plan as it stands in the tables on the device, read back: that of the proven plan.
  std::uint64_t fingerprint_on_device() const;

 private:
  void write(BufferId buffer, std::span<const std::byte> bytes) override;
  void read(BufferId buffer, std::span<std::byte> bytes) const override;

  class State;
  std::unique_ptr<State> state_;
};

}  // namespace tileway
