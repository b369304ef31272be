#include "plan/verify/clocks.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tileway/error.hpp"

namespace tileway::verifier {

ClockStore::ClockStore(int columns) : columns_(static_cast<std::size_t>(columns)) {
  make([&](std::uint32_t* clock) { std::fill_n(clock, columns_, 0U); });
}

std::uint32_t* ClockStore::scratch() {
  TW_REQUIRE(bytes() <= kMostBytes, ErrorKind::invalid, .where = "proof", .what = "the plan is too large to prove",
             .expected = fmt::format("at most {} GiB of clocks", kMostBytes >> 30));
  if (count_ / kBlock == blocks_.size())
    blocks_.push_back(std::make_unique_for_overwrite<std::uint32_t[]>(kBlock * columns_));
  return blocks_[count_ / kBlock].get() + (count_ % kBlock) * columns_;
}

ClockStore::Id ClockStore::join(Id a, const std::uint32_t* clock) {
  const std::uint32_t* known = at(a);
  std::uint32_t* out = scratch();
  std::uint32_t beyond = 0;
  for (std::size_t i = 0; i < columns_; ++i) {
    out[i] = std::max(known[i], clock[i]);
    beyond |= out[i] ^ known[i];
  }
  return beyond == 0 ? a : count_++;
}

ClockStore::Id ClockStore::join(Id a, Id b) {
  if (a == b) return a;
  const Id joined = join(a, at(b));
  if (joined == a || !std::equal(at(joined), at(joined) + columns_, at(b))) return joined;
  --count_;
  return b;
}

ClockStore::Id ClockStore::raise(Id a, int column, std::uint32_t count) {
  if (at(a)[column] >= count) return a;
  return make([&](std::uint32_t* clock) {
    std::copy_n(at(a), columns_, clock);
    clock[column] = count;
  });
}

// Walks the order once.
class Clocks::Builder {
 public:
  Builder(Clocks& clocks, const Progress& progress)
      : clocks_(clocks),
        sequence_(clocks.sequence_),
        store_(clocks.store_),
        progress_(progress),
        raised_(sequence_.signals()),
        lane_(sequence_.columns() - sequence_.ranks(), {store_.zero(), store_.zero(), store_.zero()}),
        room_(store_.columns()),
        lanes_left_(sequence_.ranks(), 0),
        run_of_rank_(sequence_.ranks(), -1) {
    for (int run = 0; run < sequence_.runs(); ++run) {
      for (const Task& task : sequence_.plan(run).tasks) {
        for (const Wait& wait : task.waits) {
          Raised& raised = raised_[sequence_.signal(run, wait.signal)];
          ++raised.waits_left;
          raised.partial = raised.partial || wait.value < sequence_.plan(run).signals[wait.signal].total;
        }
      }
    }
  }

  void build() {
    for (int rank = 0; rank < sequence_.ranks(); ++rank) {
      clocks_.callers_[rank].assign(sequence_.runs() + 1, store_.zero());
      begin_next_run(rank, store_.zero());
    }
    for (int instance : progress_.order) visit(instance);
  }

 private:
  using Id = ClockStore::Id;
  // The end of a task, as those who wait for it see it.
  struct Note {
    Id clock;
    int instance;
    std::uint32_t amount;
  };
  // A signal of a run.
  struct Raised {
    bool partial = false;  // somebody waits for less than the total
    int waits_left = 0;
    std::vector<Note> notes;            // kept one by one if `partial`, else only the first
    std::vector<std::uint32_t> joined;  // of all notes, once there are two
  };

  // All that the rank's lanes know comes together at its caller.
  void begin_next_run(int rank, Id known) {
    int& run = run_of_rank_[rank];
    while (lanes_left_[rank] == 0 && run < sequence_.runs()) {
      ++run;
      known = store_.raise(known, sequence_.caller_column(rank), static_cast<std::uint32_t>(run + 1));
      clocks_.callers_[rank][run] = known;
      if (run == sequence_.runs() || rank >= sequence_.plan(run).ranks()) continue;
      for (std::int32_t lane : sequence_.lanes_of(run, rank)) {
        lane_[sequence_.lane_column(run, lane)] = {known, known, known};
        if (!sequence_.plan(run).lanes[lane].tasks.empty()) ++lanes_left_[rank];
      }
    }
  }

  void visit(int instance) {
    const int run = sequence_.run_of(instance);
    const Task& task = sequence_.task(instance);
    const int column = sequence_.lane_column(run, task.lane);
    std::array<Id, 3>& lane = lane_[column];
    const std::array<Id, 3> before = lane;
    if (task.after_previous && task.index > 0)
      lane[0] = store_.raise(store_.join(lane[0], before[2]), column, sequence_.count_at_end(instance) - 1);
    for (std::size_t stage = 0; stage < 3; ++stage) {
      // Most often nothing happens at the later stages, and they know what the earlier one does.
      if (stage > 0)
        lane[stage] =
            before[stage] == before[stage - 1] ? lane[stage - 1] : store_.join(before[stage], lane[stage - 1]);
      for (const Wait& wait : task.waits) {
        if (wait.stage == static_cast<Stage>(stage)) lane[stage] = after_wait(lane[stage], run, wait, instance);
      }
    }
    clocks_.stages_[instance] = lane;
    for (const Notify& notify : task.notifies)
      note(sequence_.signal(run, notify.signal), {lane[2], instance, notify.amount});
    if (task.index + 1 == static_cast<std::int32_t>(sequence_.plan(run).lanes[task.lane].tasks.size()) &&
        --lanes_left_[task.rank] == 0) {
      end_run(task.rank, run);
    }
  }

  void end_run(int rank, int run) {
    const Id known = store_.make([&](std::uint32_t* clock) {
      std::copy_n(store_.at(clocks_.callers_[rank][run]), store_.columns(), clock);
      for (std::int32_t lane : sequence_.lanes_of(run, rank)) {
        const int column = sequence_.lane_column(run, lane);
        const std::uint32_t* end = store_.at(lane_[column][2]);
        for (std::size_t i = 0; i < store_.columns(); ++i) clock[i] = std::max(clock[i], end[i]);
        clock[column] = sequence_.lane_count_at_end(run, lane);
      }
      // A lane's own column may be behind what the others know of it.
      for (std::int32_t lane : sequence_.lanes_of(run, rank))
        clock[sequence_.lane_column(run, lane)] = sequence_.lane_count_at_end(run, lane);
    });
    begin_next_run(rank, known);
  }

  void note(int signal, const Note& note) {
    Raised& raised = raised_[signal];
    if (raised.waits_left == 0 && !raised.partial) return;
    if (raised.partial || raised.notes.empty()) raised.notes.push_back(note);
    if (raised.partial ||
        (raised.notes.size() == 1 && raised.notes[0].instance == note.instance && raised.joined.empty()))
      return;
    if (raised.joined.empty()) {
      raised.joined.assign(store_.columns(), 0);
      add_to(raised.joined, raised.notes[0]);
    }
    add_to(raised.joined, note);
  }

  void add_to(std::vector<std::uint32_t>& joined, const Note& note) const {
    const std::uint32_t* clock = store_.at(note.clock);
    for (std::size_t i = 0; i < joined.size(); ++i) joined[i] = std::max(joined[i], clock[i]);
    std::uint32_t& own = joined[clocks_.column_[note.instance]];
    own = std::max(own, clocks_.count_[note.instance]);
  }

  Id after_wait(Id known, int run, const Wait& wait, int instance) {
    const int signal = sequence_.signal(run, wait.signal);
    Raised& raised = raised_[signal];
    if (raised.partial) {
      known = after_some(known, wait.value, run, wait.signal, instance);
    } else if (!raised.notes.empty()) {
      if (raised.joined.empty()) {
        std::fill(room_.begin(), room_.end(), 0U);
        add_to(room_, raised.notes[0]);
        known = store_.join(known, room_.data());
      } else {
        known = store_.join(known, raised.joined.data());
      }
    }
    if (--raised.waits_left == 0 && !raised.partial) raised = {};
    return known;
  }

  // A column's count is certain when the notifications that do not know it cannot make up the value: so it is the
  // least count that enough of the others, in the order of what they know, come to. The counter goes on from run to
  // run, so the notifications of the runs before count too.
  Id after_some(Id known, std::uint32_t value, int run, SignalId id, int instance) {
    const std::uint32_t total = sequence_.plan(run).signals[id].total;
    std::vector<Note> notes;
    std::uint64_t wanted = value;
    std::uint64_t unseen = 0;
    for (int earlier = 0; earlier <= run; ++earlier) {
      if (sequence_.plan_number(earlier) != sequence_.plan_number(run)) continue;
      const std::vector<Note>& seen = raised_[sequence_.signal(earlier, id)].notes;
      std::uint64_t left = total;
      for (const Note& note : seen) left -= note.amount;
      if (earlier < run) wanted += total;
      if (earlier == run && left > 0) left = possible_without(instance, run, id, seen);
      unseen += left;
      notes.insert(notes.end(), seen.begin(), seen.end());
    }
    if (wanted == 0) return known;
    std::vector<std::pair<std::uint32_t, std::uint64_t>> counts;  // in a column, and the amount
    for (std::size_t column = 0; column < room_.size(); ++column) {
      counts.clear();
      if (unseen > 0) counts.emplace_back(0, unseen);
      for (const Note& note : notes) {
        std::uint32_t count = store_.at(note.clock)[column];
        if (clocks_.column_[note.instance] == static_cast<int>(column))
          count = std::max(count, clocks_.count_[note.instance]);
        counts.emplace_back(count, note.amount);
      }
      std::sort(counts.begin(), counts.end());
      std::uint64_t sum = 0;
      for (const auto& [count, amount] : counts) {
        sum += amount;
        room_[column] = count;
        if (sum >= wanted) break;
      }
    }
    return store_.join(known, room_.data());
  }

  // What of a signal, beyond the notes, could be raised although this instance never ends. About those notifications
  // nothing is known yet; taking them to know nothing can only make the proof harder.
  std::uint32_t possible_without(int instance, int run, SignalId id, const std::vector<Note>& notes) const {
    const Progress without = progress(sequence_, instance);
    std::uint32_t possible = 0;
    const Plan& plan = sequence_.plan(run);
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
      const int other = sequence_.instance(run, static_cast<TaskId>(t));
      if (!without.ended[other]) continue;
      const bool seen =
          std::any_of(notes.begin(), notes.end(), [&](const Note& note) { return note.instance == other; });
      for (const Notify& notify : plan.tasks[t].notifies) {
        if (!seen && notify.signal == id) possible += notify.amount;
      }
    }
    return possible;
  }

  Clocks& clocks_;
  const Sequence& sequence_;
  ClockStore& store_;
  const Progress& progress_;
  std::vector<Raised> raised_;
  std::vector<std::array<Id, 3>> lane_;  // by column: what each stage of the lane knows
  std::vector<std::uint32_t> room_;      // a clock in the making
  std::vector<int> lanes_left_;
  std::vector<int> run_of_rank_;
};

Clocks::Clocks(const Sequence& sequence, const Progress& progress)
    : sequence_(sequence),
      store_(sequence.columns()),
      stages_(sequence.instances()),
      column_(sequence.instances()),
      count_(sequence.instances()),
      callers_(sequence.ranks()) {
  for (int run = 0; run < sequence.runs(); ++run) {
    const Plan& plan = sequence.plan(run);
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
      const int instance = sequence.instance(run, static_cast<TaskId>(t));
      column_[instance] = sequence.lane_column(run, plan.tasks[t].lane);
      count_[instance] = sequence.count_at_end(instance);
    }
  }
  Builder(*this, progress).build();
}

bool Clocks::stage_before(int first, Stage first_stage, int second, Stage second_stage) const {
  if (column_[first] == column_[second] && count_[first] < count_[second] && first_stage <= second_stage) return true;
  return ended_before(first, second, second_stage);
}

std::size_t Clocks::bytes() const {
  return store_.bytes() + stages_.size() * (sizeof(stages_[0]) + sizeof(int) + sizeof(std::uint32_t));
}

}  // namespace tileway::verifier
