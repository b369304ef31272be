#include "support/random_plan.hpp"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

namespace tileway::testing {
namespace {

using Mode = Access::Mode;

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}

  Plan draw() {
    const int ranks = 1 + below(3);
    plan_.name = "random";
    plan_.schedule = "random";
    plan_.origins = {"begin", "work", "end"};
    plan_.bodies = {{.kind = Body::Kind::none}, {.kind = Body::Kind::copy}};
    plan_.topology.ranks = ranks;
    plan_.topology.lanes = 4;
    care_ = likely(60) ? 100 : 90;
    for (int rank = 0; rank < ranks; ++rank) {
      add_buffer(rank, Buffer::Role::input);
      add_buffer(rank, Buffer::Role::scratch);
      if (likely(40)) add_buffer(rank, Buffer::Role::scratch);
      const int lanes = ranks == 1 ? 2 : 1 + likely(40);
      for (int l = 0; l < lanes; ++l) plan_.lanes.push_back({rank, Engine::compute, {}});
    }
    for (int rank = 0; rank < ranks; ++rank) begin_.push_back(likely(care_) ? add_task(rank, 0) : -1);
    const int tasks = 2 + below(4);
    for (int t = 0; t < tasks; ++t) add_copy();
    for (int rank = 0; rank < ranks; ++rank) add_end(rank);
    if (likely(8)) swap_two();
    choose_outputs();
    number();
    vary_signals();
    return std::move(plan_);
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
  bool likely(int percent) { return below(100) < percent; }

  void add_buffer(int rank, Buffer::Role role) {
    Buffer buffer{.name = "b", .rank = rank, .role = role, .dtype = DType::i32, .shape = {4}};
    buffer.symmetric = true;
    if (role == Buffer::Role::scratch && likely(20)) buffer.slots = 2;
    plan_.buffers.push_back(buffer);
    if (role == Buffer::Role::input)
      plan_.inputs.push_back({"x", rank, static_cast<BufferId>(plan_.buffers.size()) - 1});
  }

  TaskId add_task(int rank, int origin) {
    std::vector<std::int32_t> lanes;
    for (std::size_t l = 0; l < plan_.lanes.size(); ++l) {
      if (plan_.lanes[l].rank == rank) lanes.push_back(static_cast<std::int32_t>(l));
    }
    Task task;
    task.rank = rank;
    task.lane = lanes[below(static_cast<int>(lanes.size()))];
    task.origin = origin;
    task.after_previous = likely(30);
    plan_.tasks.push_back(task);
    const auto id = static_cast<TaskId>(plan_.tasks.size()) - 1;
    plan_.lanes[task.lane].tasks.push_back(id);
    return id;
  }

  void depend(TaskId before, TaskId after) {
    if (before < 0 || !likely(care_)) return;
    Task& waiter = plan_.tasks[after];
    const bool system = plan_.tasks[before].rank != waiter.rank;
    const Notify notify{0, static_cast<std::uint32_t>(1 + likely(10)),
                        system ? Notify::Scope::system : Notify::Scope::device};
    // Joins a signal that the task already waits for, or makes one.
    SignalId signal = -1;
    if (!waiter.waits.empty() && likely(60)) signal = waiter.waits[below(static_cast<int>(waiter.waits.size()))].signal;
    if (signal == -1) {
      signal = static_cast<SignalId>(plan_.signals.size());
      plan_.signals.push_back({waiter.rank, SignalInfo::Kind::add, 0});
      waiter.waits.push_back({signal, 0, likely(8) ? Stage::epilogue : Stage::load});
    }
    plan_.tasks[before].notifies.push_back({signal, notify.amount, notify.scope});
    plan_.signals[signal].total += notify.amount;
    for (Wait& wait : waiter.waits) {
      if (wait.signal == signal) wait.value = plan_.signals[signal].total;
    }
  }

  Box box() {
    const int start = below(3);
    return {{start}, {1 + below(4 - start)}};
  }

  void add_copy() {
    const int rank = below(plan_.ranks());
    const TaskId id = add_task(rank, 1);
    Access read{.buffer = below(static_cast<int>(plan_.buffers.size())), .box = box()};
    if (!written_.empty() && likely(70)) read = written_[below(static_cast<int>(written_.size()))];
    if (likely(90) && plan_.buffers[read.buffer].role == Buffer::Role::scratch &&
        std::none_of(written_.begin(), written_.end(),
                     [&](const Access& w) { return w.buffer == read.buffer && w.box == read.box; }))
      read = {.buffer = input_of(below(plan_.ranks())), .box = read.box};
    read.mode = Mode::read;
    read.stage = likely(8) ? Stage::epilogue : Stage::load;
    Access write{.buffer = 0, .box = {{0}, read.box.extent}, .mode = Mode::write, .stage = Stage::store};
    do {
      write.buffer = below(static_cast<int>(plan_.buffers.size()));
    } while (plan_.buffers[write.buffer].role == Buffer::Role::input && likely(95));
    write.box.start[0] = below(static_cast<int>(5 - write.box.extent[0]));
    if (write.buffer == read.buffer && write.box != read.box && overlaps(write.box, read.box)) write.box = read.box;
    if (likely(6)) {
      write.mode = Mode::accumulate;
      write.op = ReduceOp::sum;
    }
    Task& task = plan_.tasks[id];
    task.body = 1;
    task.reads = {read};
    task.writes = {write};
    written_.push_back(write);
    for (TaskId earlier = 0; earlier < id; ++earlier) {
      if (conflict(plan_.tasks[earlier], plan_.tasks[id])) depend(earlier, id);
    }
    for (const Access& access : {read, write}) {
      const int other = plan_.buffers[access.buffer].rank;
      if (other != rank) depend(begin_[other], id);
    }
  }

  BufferId input_of(int rank) const {
    for (const Plan::Binding& input : plan_.inputs) {
      if (input.rank == rank) return input.buffer;
    }
    return -1;
  }

  static bool conflict(const Task& a, const Task& b) {
    for (const auto* list : {&a.reads, &a.writes}) {
      for (const Access& x : *list) {
        for (const auto* other : {&b.reads, &b.writes}) {
          for (const Access& y : *other) {
            if (x.buffer == y.buffer && (x.mode != Mode::read || y.mode != Mode::read) && overlaps(x.box, y.box))
              return true;
          }
        }
      }
    }
    return false;
  }

  // A run of a rank ends after what peers do to its memory.
  void add_end(int rank) {
    std::vector<TaskId> visitors;
    for (std::size_t t = 0; t < plan_.tasks.size(); ++t) {
      const Task& task = plan_.tasks[t];
      if (task.rank == rank) continue;
      for (const auto* list : {&task.reads, &task.writes}) {
        for (const Access& access : *list) {
          if (plan_.buffers[access.buffer].rank == rank) visitors.push_back(static_cast<TaskId>(t));
        }
      }
    }
    visitors.erase(std::unique(visitors.begin(), visitors.end()), visitors.end());
    if (visitors.empty()) return;
    const TaskId end = add_task(rank, 2);
    for (TaskId visitor : visitors) depend(visitor, end);
  }

  void swap_two() {
    Lane& lane = plan_.lanes[below(static_cast<int>(plan_.lanes.size()))];
    if (lane.tasks.size() < 2) return;
    std::swap(lane.tasks[below(static_cast<int>(lane.tasks.size()))],
              lane.tasks[below(static_cast<int>(lane.tasks.size()))]);
  }

  // Buffers that are written once, everywhere, may be outputs.
  void choose_outputs() {
    for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
      std::vector<int> times(4, 0);
      for (const Task& task : plan_.tasks) {
        for (const Access& write : task.writes) {
          if (write.buffer != static_cast<BufferId>(b) || write.mode != Mode::write) continue;
          for (std::int64_t i = 0; i < write.box.extent[0]; ++i) ++times[write.box.start[0] + i];
        }
      }
      const bool once = std::all_of(times.begin(), times.end(), [](int n) { return n == 1; });
      if (once && plan_.buffers[b].role == Buffer::Role::scratch)
        plan_.outputs.push_back({"y", plan_.buffers[b].rank, static_cast<BufferId>(b)});
    }
  }

  void number() {
    for (const Lane& lane : plan_.lanes) {
      for (std::size_t i = 0; i < lane.tasks.size(); ++i)
        plan_.tasks[lane.tasks[i]].index = static_cast<std::int32_t>(i);
    }
  }

  void vary_signals() {
    for (Task& task : plan_.tasks) {
      for (Wait& wait : task.waits) {
        SignalInfo& signal = plan_.signals[wait.signal];
        if (signal.total == 1 && likely(20)) signal.kind = SignalInfo::Kind::set;
        if (wait.value > 1 && likely(12)) wait.value -= 1 + below(static_cast<int>(wait.value) - 1);
      }
    }
  }

  std::mt19937_64 random_;
  Plan plan_;
  int care_ = 100;  // in a hundred, how often a dependency is kept
  std::vector<TaskId> begin_;
  std::vector<Access> written_;
};

}  // namespace

Plan random_plan(std::uint64_t seed) { return Generator(seed).draw(); }

}  // namespace tileway::testing
