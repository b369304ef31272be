#include "tileway/executor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "exec/agreement.hpp"
#include "exec/board.hpp"
#include "exec/host/kernels/kernels.hpp"
#include "plan/check.hpp"
#include "plan/layout.hpp"
#include "runtime/signal.hpp"
#include "tileway/error.hpp"

namespace tileway {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t now_ns() { return Clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

// A task with its addresses filled in.
struct Prepared {
  struct WaitFor {
    Signal* signal;
    std::uint32_t total;
    std::uint32_t value;
    SignalId id;
  };
  struct Raise {
    Signal* signal;
    std::uint32_t amount;
  };
  TaskId id;
  std::vector<host::View> reads;
  std::vector<host::View> writes;
  bool slotted;  // works on buffers with several slots: its views change from run to run
  std::vector<WaitFor> waits;
  std::vector<Raise> raises;
  std::int64_t bytes_sent;
};

}  // namespace

class HostExecutor::State {
 public:
  State(Group group, std::shared_ptr<const ProvenPlan> plan, Options options)
      : group_(std::move(group)),
        proven_(std::move(plan)),
        plan_(proven_->plan()),
        options_(options),
        layout_(plan_),
        symmetric_(prepare_memory()),
        board_(plan_, layout_, parts_of(symmetric_)),
        private_(layout_.private_bytes[group_.rank()] + PlanLayout::kAlignment) {
    fill_constants();
    for (std::size_t l = 0; l < plan_.lanes.size(); ++l) {
      if (plan_.lanes[l].rank != group_.rank()) continue;
      lanes_.push_back(prepare(plan_.lanes[l]));
      places_.push_back(&board_.lane(static_cast<std::int32_t>(l)));
      places_.back()->signal = -1;
    }
    events_.resize(lanes_.size());
    try {
      for (std::size_t l = 0; l < lanes_.size(); ++l) threads_.emplace_back([this, l] { serve(l); });
    } catch (...) {
      stop();
      throw;
    }
  }

  ~State() { stop(); }

  // Of the buffer's slot in run `epoch`.
  std::byte* address(BufferId id, std::uint32_t epoch = 0) const {
    const Buffer& buffer = plan_.buffers[id];
    const std::size_t offset = layout_.buffer_offset[id] + epoch % buffer.slots * PlanLayout::slot_bytes(buffer);
    if (buffer.symmetric) return symmetric_.on(buffer.rank).data() + offset;
    TW_ASSERT(buffer.rank == group_.rank());
    auto base = reinterpret_cast<std::uintptr_t>(private_.data());
    base = (base + PlanLayout::kAlignment - 1) / PlanLayout::kAlignment * PlanLayout::kAlignment;
    return reinterpret_cast<std::byte*>(base) + offset;
  }

  void run();
  std::uint32_t runs_started() const { return runs_started_; }

  Group group_;
  std::shared_ptr<const ProvenPlan> proven_;
  const Plan& plan_;
  Options options_;
  PlanLayout layout_;
  SymmetricMemory symmetric_;
  Board board_;
  mutable std::vector<std::byte> private_;
  std::vector<TraceEvent> trace_;

 private:
  std::vector<std::byte*> parts_of(const SymmetricMemory& memory) const {
    std::vector<std::byte*> parts;
    for (int rank = 0; rank < group_.size(); ++rank) parts.push_back(memory.on(rank).data());
    return parts;
  }

  SymmetricMemory prepare_memory() {
    for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
      const Task& task = plan_.tasks[t];
      const bool adds = std::any_of(task.writes.begin(), task.writes.end(),
                                    [](const Access& write) { return write.mode == Access::Mode::accumulate; });
      TW_REQUIRE(task.joint == -1 && !adds, ErrorKind::invalid, .where = task_name(plan_, static_cast<TaskId>(t)),
                 .what = task.joint != -1 ? "the host has no engine for joint tasks" : "the host does not accumulate",
                 .hint = "The explorer runs such plans");
    }
    for (const Buffer& buffer : plan_.buffers) {
      TW_REQUIRE(buffer.shared.empty(), ErrorKind::invalid, .where = plan_.name,
                 .what = "the host does not share memory between plans", .got = "buffer '" + buffer.name + "'");
    }
    agree(group_, *proven_);
    return group_.allocate(layout_.symmetric_bytes);
  }

  void fill_constants() {
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
      const Buffer& buffer = plan_.buffers[b];
      if (buffer.rank != group_.rank() || buffer.role != Buffer::Role::constant) continue;
      const Array array = Array::filled(buffer.dtype, buffer.shape, buffer.value);
      if (array.bytes() > 0) std::memcpy(address(static_cast<BufferId>(b)), array.data(), array.bytes());
    }
  }

  host::View view(const Access& access, std::uint32_t epoch) const {
    const Buffer& buffer = plan_.buffers[access.buffer];
    const Dims strides = row_major_strides(buffer.shape);
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < strides.size(); ++d) offset += access.box.start[d] * strides[d];
    return {address(access.buffer, epoch) + offset * static_cast<std::int64_t>(size_of(buffer.dtype)), buffer.dtype,
            access.box.extent, strides};
  }

  Signal* signal(SignalId id) const {
    return reinterpret_cast<Signal*>(symmetric_.on(plan_.signals[id].rank).data() + layout_.signal_offset[id]);
  }

  void look_up(Prepared& prepared, std::uint32_t epoch) const {
    const Task& task = plan_.tasks[prepared.id];
    prepared.reads.clear();
    prepared.writes.clear();
    for (const Access& read : task.reads) prepared.reads.push_back(view(read, epoch));
    for (const Access& write : task.writes) prepared.writes.push_back(view(write, epoch));
  }

  std::vector<Prepared> prepare(const Lane& lane) const {
    std::vector<Prepared> tasks;
    for (TaskId id : lane.tasks) {
      const Task& task = plan_.tasks[id];
      Prepared prepared{id, {}, {}, false, {}, {}, plan_.bytes_sent(task)};
      for (const auto* list : {&task.reads, &task.writes}) {
        for (const Access& access : *list)
          prepared.slotted = prepared.slotted || plan_.buffers[access.buffer].slots > 1;
      }
      look_up(prepared, 0);
      for (const Wait& wait : task.waits) {
        prepared.waits.push_back({signal(wait.signal), plan_.signals[wait.signal].total, wait.value, wait.signal});
      }
      for (const Notify& notify : task.notifies) prepared.raises.push_back({signal(notify.signal), notify.amount});
      tasks.push_back(std::move(prepared));
    }
    return tasks;
  }

  void serve(std::size_t lane);
  void run_lane(std::size_t lane);
  void wait_for(const Prepared& task, const Prepared::WaitFor& wait);
  void fail(std::exception_ptr error);
  void stop();

  std::vector<std::vector<Prepared>> lanes_;
  std::vector<LanePlace*> places_;               // by lane
  std::vector<std::vector<TraceEvent>> events_;  // by lane
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t runs_started_ = 0;
  std::size_t lanes_running_ = 0;
  bool stopping_ = false;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
};

void HostExecutor::State::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void HostExecutor::State::fail(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  failed_ = true;
}

// The life of a lane's thread: one pass over the lane for every run.
void HostExecutor::State::serve(std::size_t lane) {
  std::uint32_t served = 0;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || runs_started_ != served; });
      if (stopping_) return;
      ++served;
    }
    try {
      run_lane(lane);
    } catch (...) {
      fail(std::current_exception());
    }
    const std::lock_guard lock(mutex_);
    if (--lanes_running_ == 0) changed_.notify_all();
  }
}

void HostExecutor::State::wait_for(const Prepared& task, const Prepared::WaitFor& wait) {
  // Relative to the run: every run before this one has added `total`. Wraps around; see signal.hpp.
  const std::uint32_t target = (runs_started_ - 1) * wait.total + wait.value;
  if (reached(*wait.signal, target)) return;
  LanePlace& place = board_.lane(plan_.tasks[task.id].lane);
  place.signal = wait.id;
  const auto check = [&] {
    if (failed_) throw Error(ErrorKind::lost, {.where = plan_.name, .what = "another lane of this rank has failed"});
    group_.check_members();
  };
  if (tileway::wait(*wait.signal, target, Clock::now() + group_.deadline(), check)) {
    place.signal = -1;
    return;
  }
  const std::string root = board_.root_of(wait.id, runs_started_, [&](int rank) { return group_.process_state(rank); });
  const std::uint32_t seen = wait.signal->value.load() - (runs_started_ - 1) * wait.total;
  throw Error(ErrorKind::lost, {.where = fmt::format("{}, {}", plan_.name, task_name(plan_, task.id)),
                                .what = fmt::format("signal {} was not raised within {} ms {}", wait.id,
                                                    group_.deadline().count(), root),
                                .expected = std::to_string(wait.value),
                                .got = std::to_string(seen)});
}

void HostExecutor::State::run_lane(std::size_t lane) {
  LanePlace& place = *places_[lane];
  std::uint32_t index = 0;
  for (Prepared& task : lanes_[lane]) {
    const std::int64_t reached_at = now_ns();
    place.index.store(index++, std::memory_order_relaxed);
    place.run.store(runs_started_, std::memory_order_relaxed);
    if (task.slotted) look_up(task, runs_started_ - 1);
    for (const Prepared::WaitFor& wait : task.waits) wait_for(task, wait);
    if (failed_) return;
    const std::int64_t begin = now_ns();
    if (options_.link_gb_s > 0 && task.bytes_sent > 0) {  // on a slow link the bytes arrive late
      const auto least = static_cast<std::int64_t>(static_cast<double>(task.bytes_sent) / options_.link_gb_s);
      std::this_thread::sleep_until(Clock::time_point(std::chrono::nanoseconds(begin + least)));
    }
    host::run_body({plan_.bodies[plan_.tasks[task.id].body], task.reads, task.writes});
    // Release: whoever sees the count sees what the body wrote.
    for (const Prepared::Raise& raise : task.raises) notify(*raise.signal, raise.amount);
    if (options_.trace) events_[lane].push_back({task.id, reached_at, begin, now_ns()});
  }
  place.index.store(index, std::memory_order_relaxed);
}

void HostExecutor::State::run() {
  TW_REQUIRE(!failed_, ErrorKind::lost, .where = plan_.name, .what = "an earlier run of this executor has failed",
             .hint = "Make a new group and a new executor");
  group_.check_members();
  for (auto& events : events_) events.clear();
  {
    std::unique_lock lock(mutex_);
    lanes_running_ = lanes_.size();
    ++runs_started_;
    board_.runs_begun(group_.rank()) = runs_started_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return lanes_running_ == 0; });
  }
  trace_.clear();
  for (const auto& events : events_) trace_.insert(trace_.end(), events.begin(), events.end());
  if (!error_) return;
  try {
    std::rethrow_exception(error_);
  } catch (const Error& error) {
    group_.announce_failure(error);
    throw;
  }
}

HostExecutor::HostExecutor(Group& group, ProvenPlan plan, Options options)
    : Executor(group.rank(), std::move(plan)), state_(std::make_unique<State>(group, proven(), options)) {}
HostExecutor::HostExecutor(HostExecutor&&) noexcept = default;
HostExecutor& HostExecutor::operator=(HostExecutor&&) noexcept = default;
HostExecutor::~HostExecutor() = default;

void HostExecutor::write(BufferId buffer, std::span<const std::byte> bytes) {
  std::memcpy(state_->address(buffer, state_->runs_started()), bytes.data(), bytes.size());
}

void HostExecutor::read(BufferId buffer, std::span<std::byte> bytes) const {
  // What the last run left; before the first, what was set.
  const std::uint32_t runs = state_->runs_started();
  std::memcpy(bytes.data(), state_->address(buffer, runs > 0 ? runs - 1 : 0), bytes.size());
}

void HostExecutor::run() { state_->run(); }

std::vector<double> HostExecutor::time_runs(int count) {
  constexpr int kWarmUps = 3;
  std::vector<double> times;
  for (int i = 0; i < kWarmUps + count; ++i) {
    state_->group_.barrier("a timed run");
    const Clock::time_point begin = Clock::now();
    run();
    if (i >= kWarmUps) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  return times;
}

const std::vector<TraceEvent>& HostExecutor::trace() const { return state_->trace_; }

}  // namespace tileway
