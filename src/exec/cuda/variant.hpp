// Which device function runs a task's body, and the kernel that holds all that a plan needs.
#pragma once

#include <map>
#include <string>

#include "tileway/plan.hpp"

namespace tileway::cuda {

// "pointwise<bf16>": a function of the device headers that takes Arguments.
std::string variant_of(const Plan& plan, const Task& task);

// The text of a kernel for some variants, each a case of one switch. Plans that use the same variants share it, and so
// its compiled image.
class KernelText {
 public:
  // Of all compute lanes of a plan.
  explicit KernelText(const Plan& plan);
  // The case of a variant.
  std::uint32_t number(const std::string& variant) const { return numbers_.at(variant); }
  std::string source() const;

 private:
  std::map<std::string, std::uint32_t> numbers_;
};

}  // namespace tileway::cuda
