#include "plan/joint.hpp"

#include <algorithm>

namespace tileway {

bool is_joint(Body::Kind kind) {
  return kind == Body::Kind::all_reduce || kind == Body::Kind::reduce_scatter || kind == Body::Kind::exchange;
}

std::vector<std::vector<TaskId>> joints_of(const Plan& plan) {
  std::vector<std::vector<TaskId>> joints;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const std::int32_t joint = plan.tasks[t].joint;
    if (joint == -1) continue;
    if (joint >= static_cast<std::int32_t>(joints.size())) joints.resize(static_cast<std::size_t>(joint) + 1);
    joints[joint].push_back(static_cast<TaskId>(t));
  }
  for (std::vector<TaskId>& members : joints) {
    std::stable_sort(members.begin(), members.end(),
                     [&](TaskId a, TaskId b) { return plan.tasks[a].rank < plan.tasks[b].rank; });
  }
  return joints;
}

std::vector<Given> sources_of(const Body& body, std::size_t members, std::size_t self, std::size_t write) {
  if (body.kind == Body::Kind::exchange) return {{write, self}};
  std::vector<Given> all;
  for (std::size_t member = 0; member < members; ++member)
    all.push_back({member, body.kind == Body::Kind::reduce_scatter ? self : 0});
  return all;
}

}  // namespace tileway
