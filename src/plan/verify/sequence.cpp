#include "plan/verify/sequence.hpp"

#include <algorithm>

#include "tileway/error.hpp"

namespace tileway::verifier {

Sequence::Sequence(const std::vector<const Plan*>& runs) {
  std::vector<const Plan*> known;
  std::vector<int> times;
  for (const Plan* plan : runs) {
    const auto found = std::find(known.begin(), known.end(), plan);
    const int number = static_cast<int>(found - known.begin());
    if (found == known.end()) {
      PlanInfo info{columns_, std::vector<std::vector<std::int32_t>>(plan->ranks()), {}};
      for (std::size_t l = 0; l < plan->lanes.size(); ++l)
        info.lanes[plan->lanes[l].rank].push_back(static_cast<std::int32_t>(l));
      for (const Task& task : plan->tasks) {
        if (task.joint == -1) continue;
        info.joints.resize(std::max<std::size_t>(info.joints.size(), task.joint + 1), 0);
        ++info.joints[task.joint];
      }
      columns_ += static_cast<int>(plan->lanes.size());
      ranks_ = std::max(ranks_, plan->ranks());
      known.push_back(plan);
      times.push_back(0);
      plans_.push_back(std::move(info));
    }
    runs_.push_back({plan, number, times[number]++, instances_, signals_});
    instances_ += static_cast<int>(plan->tasks.size());
    signals_ += static_cast<int>(plan->signals.size());
  }
  columns_ += ranks_;
}

int Sequence::first_run(int plan_number) const {
  int run = 0;
  while (runs_[run].number != plan_number) ++run;
  return run;
}

int Sequence::run_of(int instance) const {
  int run = 0;
  while (run + 1 < runs() && runs_[run + 1].first_instance <= instance) ++run;
  return run;
}

const Task& Sequence::task(int instance) const {
  const Run& run = runs_[run_of(instance)];
  return run.plan->tasks[instance - run.first_instance];
}

Instance Sequence::describe(int instance) const {
  const int run = run_of(instance);
  return {run, instance - runs_[run].first_instance, task(instance).rank};
}

std::uint32_t Sequence::count_at_end(int instance) const {
  const int run = run_of(instance);
  const Task& task = runs_[run].plan->tasks[instance - runs_[run].first_instance];
  const std::size_t length = runs_[run].plan->lanes[task.lane].tasks.size();
  return static_cast<std::uint32_t>(length * runs_[run].epoch + task.index + 1);
}

std::uint32_t Sequence::lane_count_at_end(int run, std::int32_t lane) const {
  return static_cast<std::uint32_t>(runs_[run].plan->lanes[lane].tasks.size() * (runs_[run].epoch + 1));
}

}  // namespace tileway::verifier
