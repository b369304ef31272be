// Of every memory, each pair of overlapping accesses of which one writes is looked at in every pair of runs in which
// they mean the same slot. Pairs on one rank in different runs are ordered by that rank's caller.
#include "plan/verify/races.hpp"

#include <algorithm>
#include <set>

namespace tileway::verifier {
namespace {

using Mode = Access::Mode;

bool conflict(const Touch& a, const Touch& b) {
  const Access& x = *a.access;
  const Access& y = *b.access;
  if (x.mode == Mode::read && y.mode == Mode::read) return false;
  if (x.mode == Mode::accumulate && y.mode == Mode::accumulate && x.op == y.op) return false;
  return x.partition == -1 || x.partition != y.partition || a.plan_number != b.plan_number || x.slice == y.slice;
}

class Sweep {
 public:
  Sweep(const Sequence& sequence, const Clocks& clocks, const Memory& memory, std::vector<Suspect>& suspects,
        std::size_t& pairs)
      : sequence_(sequence),
        clocks_(clocks),
        memory_(memory),
        suspects_(suspects),
        pairs_(pairs),
        covered_(memory.touches.size(), 0) {}

  void run() {
    const std::vector<Touch>& touches = memory_.touches;
    if (std::all_of(touches.begin(), touches.end(), [](const Touch& t) { return t.access->mode == Mode::read; }) &&
        !needs_writer_anywhere())
      return;
    sweep();
    for (std::size_t t = 0; t < touches.size(); ++t) {
      if (needs_writer(touches[t])) check_written(t);
    }
  }

 private:
  const Box& box(std::size_t touch) const { return memory_.touches[touch].access->box; }
  bool reads(std::size_t touch) const { return memory_.touches[touch].access->mode == Mode::read; }

  const Plan& plan_of(const Touch& touch) const { return sequence_.plan(first_run(touch)); }
  int first_run(const Touch& touch) const { return sequence_.first_run(touch.plan_number); }

  // A read (or an accumulate, which adds to something) of what holds nothing when the run begins.
  bool needs_writer(const Touch& touch) const {
    return touch.access->mode != Mode::write && plan_of(touch).buffers[touch.buffer].role == Buffer::Role::scratch;
  }
  bool needs_writer_anywhere() const {
    return std::any_of(memory_.touches.begin(), memory_.touches.end(), [&](const Touch& t) { return needs_writer(t); });
  }

  // Along the dimension with most different starts; a touch meets those that began before it and have not ended.
  void sweep() {
    const std::vector<Touch>& touches = memory_.touches;
    std::size_t dim = 0;
    std::size_t most = 0;
    for (std::size_t d = 0; d < box(0).start.size(); ++d) {
      std::vector<std::int64_t> starts;
      for (std::size_t t = 0; t < touches.size(); ++t) starts.push_back(box(t).start[d]);
      std::sort(starts.begin(), starts.end());
      const auto different = static_cast<std::size_t>(std::unique(starts.begin(), starts.end()) - starts.begin());
      if (different <= most) continue;
      most = different;
      dim = d;
    }
    const bool scalar = box(0).start.empty();
    const auto start = [&](std::size_t t) { return scalar ? 0 : box(t).start[dim]; };
    const auto end = [&](std::size_t t) { return scalar ? 1 : box(t).start[dim] + box(t).extent[dim]; };
    std::vector<std::size_t> order(touches.size());
    for (std::size_t t = 0; t < order.size(); ++t) order[t] = t;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return start(a) < start(b); });
    std::vector<std::size_t> open_reads;
    std::vector<std::size_t> open_writes;
    const auto meet = [&](std::vector<std::size_t>& open, std::size_t touch) {
      std::erase_if(open, [&](std::size_t other) { return end(other) <= start(touch); });
      for (std::size_t other : open) {
        if (conflict(touches[other], touches[touch]) && overlaps(box(other), box(touch))) check_pair(other, touch);
      }
    };
    for (std::size_t touch : order) {
      if (!reads(touch)) meet(open_reads, touch);
      meet(open_writes, touch);
      (reads(touch) ? open_reads : open_writes).push_back(touch);
    }
  }

  bool same_slot(const Touch& a, int run_a, const Touch& b, int run_b) const {
    if (sequence_.plan_number(run_a) != a.plan_number || sequence_.plan_number(run_b) != b.plan_number) return false;
    return (sequence_.epoch(run_a) - sequence_.epoch(run_b)) % memory_.slots == 0;
  }

  // An input is written before its run; an output is read after its run, which is before the next.
  int caller_turn(const Touch& touch, int run) const { return touch.access->mode == Mode::write ? run : run + 1; }

  bool before(const Touch& a, int run_a, const Touch& b, int run_b) const {
    if (a.task == -1 && b.task == -1)
      return clocks_.caller_before_caller(a.rank, caller_turn(a, run_a), b.rank, caller_turn(b, run_b));
    if (a.task == -1)
      return clocks_.caller_before(a.rank, caller_turn(a, run_a), sequence_.instance(run_b, b.task), b.access->stage);
    const int first = sequence_.instance(run_a, a.task);
    if (b.task == -1) return clocks_.ended_before_caller(first, b.rank, caller_turn(b, run_b));
    return clocks_.stage_before(first, a.access->stage, sequence_.instance(run_b, b.task), b.access->stage);
  }

  void check_pair(std::size_t x, std::size_t y) {
    const Touch& a = memory_.touches[x];
    const Touch& b = memory_.touches[y];
    if (a.task != -1 && a.task == b.task && a.plan_number == b.plan_number) return;
    for (int run_a = 0; run_a < sequence_.runs(); ++run_a) {
      for (int run_b = 0; run_b < sequence_.runs(); ++run_b) {
        if (!same_slot(a, run_a, b, run_b)) continue;
        if (run_a != run_b && a.rank == b.rank) continue;
        ++pairs_;
        const bool forwards = before(a, run_a, b, run_b);
        if (!forwards && !before(b, run_b, a, run_a)) {
          add_race(a, run_a, b, run_b);
          continue;
        }
        if (run_a != run_b || sequence_.epoch(run_a) > 0) continue;
        if (a.access->mode == Mode::write && b.access->mode == Mode::write) rewritten_ = true;
        if (a.access->mode == Mode::write && forwards) cover(x, y);
        if (b.access->mode == Mode::write && !forwards) cover(y, x);
        // A sum that its reader reads too early: only the caller's reading is surely meant to be after it.
        const Touch& reader = forwards ? a : b;
        const Touch& sum = forwards ? b : a;
        if (reader.task == -1 && reader.access->mode == Mode::read && sum.access->mode == Mode::accumulate)
          add_late(sum, reader, run_a);
      }
    }
  }

  void add_race(const Touch& a, int run_a, const Touch& b, int run_b) {
    const auto instance = [&](const Touch& touch, int run) {
      return Instance{touch.task == -1 ? caller_turn(touch, run) : run, touch.task, touch.rank};
    };
    // The one that should come first: of the earlier run, else the writer.
    const bool swap = run_b < run_a || (run_a == run_b && a.access->mode == Mode::read);
    const Touch& first = swap ? b : a;
    const Touch& second = swap ? a : b;
    const int first_run = swap ? run_b : run_a;
    const int second_run = swap ? run_a : run_b;
    suspects_.push_back({Fault::race, instance(first, first_run), instance(second, second_run), first.access->stage,
                         second.access->stage, &plan_of(second), second.buffer,
                         intersect(first.access->box, second.access->box)});
  }

  void add_late(const Touch& sum, const Touch& caller, int run) {
    suspects_.push_back({Fault::unwritten,
                         {run, sum.task, sum.rank},
                         {run + 1, -1, caller.rank},
                         sum.access->stage,
                         Stage::load,
                         &plan_of(caller),
                         caller.buffer,
                         intersect(sum.access->box, caller.access->box)});
  }

  // Adds up what is written before a touch, in the first run of its plan.
  void cover(std::size_t writer, std::size_t reader) {
    const Touch& write = memory_.touches[writer];
    if (write.access->partition != -1) {
      rewritten_ = true;  // slices count together, not one by one
    } else {
      covered_[reader] += intersect(box(writer), box(reader)).volume();
    }
  }

  void check_written(std::size_t reader) {
    const Touch& read = memory_.touches[reader];
    if (!rewritten_ && covered_[reader] == box(reader).volume()) return;
    const int run = first_run(read);
    std::vector<Box> covers;
    std::vector<std::pair<std::int32_t, std::set<std::int32_t>>> slices;  // written, by partition
    const Touch* unordered = nullptr;
    for (const Touch& write : memory_.touches) {
      if (write.access->mode != Mode::write || write.plan_number != read.plan_number) continue;
      if (write.task == read.task || !overlaps(write.access->box, box(reader))) continue;
      if (!before(write, run, read, run)) {
        if (!unordered) unordered = &write;
        continue;
      }
      const std::int32_t partition = write.access->partition;
      if (partition == -1) {
        covers.push_back(write.access->box);
        continue;
      }
      auto found = std::find_if(slices.begin(), slices.end(), [&](const auto& s) { return s.first == partition; });
      if (found == slices.end()) found = slices.insert(found, {partition, {}});
      found->second.insert(write.access->slice);
      if (static_cast<int>(found->second.size()) == slices_of(plan_of(read), partition))
        covers.push_back(write.access->box);
    }
    const std::optional<Box> missing = uncovered(box(reader), covers);
    if (!missing) return;
    Suspect suspect{Fault::unwritten,
                    {run, -1, read.rank},
                    {run, read.task, read.rank},
                    Stage::store,
                    read.access->stage,
                    &plan_of(read),
                    read.buffer,
                    *missing,
                    true};
    if (read.task == -1) suspect.second.run = run + 1;
    if (unordered) {
      suspect.first = {run, unordered->task, unordered->rank};
      suspect.nobody_writes = false;
    }
    suspects_.push_back(suspect);
  }

  const Sequence& sequence_;
  const Clocks& clocks_;
  const Memory& memory_;
  std::vector<Suspect>& suspects_;
  std::size_t& pairs_;
  std::vector<std::int64_t> covered_;  // by touch: elements written before it, as long as nothing is written twice
  bool rewritten_ = false;
};

}  // namespace

void find_suspects(const Sequence& sequence, const Clocks& clocks, const Memory& memory, std::vector<Suspect>& suspects,
                   std::size_t& pairs) {
  if (!memory.touches.empty()) Sweep(sequence, clocks, memory, suspects, pairs).run();
}

}  // namespace tileway::verifier
