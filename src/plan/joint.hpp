// What the members of a joint give each other.
#pragma once

#include <cstddef>
#include <vector>

#include "tileway/plan.hpp"

namespace tileway {

// Whether it is the body of joint tasks.
bool is_joint(Body::Kind kind);

// The tasks of each joint, by its number, in the order of their ranks.
std::vector<std::vector<TaskId>> joints_of(const Plan& plan);

// A read of a joint's member.
struct Given {
  std::size_t member = 0;
  std::size_t read = 0;
};
// What a member's write is made from. Members are counted in the order of their ranks.
std::vector<Given> sources_of(const Body& body, std::size_t members, std::size_t self, std::size_t write);

}  // namespace tileway
