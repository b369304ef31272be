// Which device function runs a task's body, and the kernel that holds all that a plan needs.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "runtime/cuda/driver.hpp"
#include "tileway/plan.hpp"

namespace tileway::cuda {

// "cast<float, bf16>": a function of the device headers that takes Arguments.
std::string variant_of(const Plan& plan, const Task& task);

// The text of a kernel for some variants, each a case of one switch. Plans that use the same variants share it, and so
// its compiled image.
class KernelText {
 public:
  // Of all compute lanes of a plan. Whether TMA can load from a buffer is a matter of where it begins: all memory is
  // aligned alike but what is brought. Throws Error (invalid) for a product that the architecture's tensor cores do not
  // have.
  KernelText(const Plan& plan, std::string architecture, const std::map<BufferId, Address>& brought = {});
  // The case of a variant.
  std::uint32_t number(const std::string& variant) const { return numbers_.at(variant); }
  // Whether a service warp loads for it (device/tileway/pipeline.cuh). So on Hopper where the plan's products are of
  // one type of 16 bits or 8 and TMA can take the operands of all; the workers do it by themselves everywhere else.
  bool loads_ahead(const std::string& variant) const { return ahead_.contains(variant); }
  bool loads_ahead() const { return !ahead_.empty(); }
  std::string source() const;
  // How the plan's products are multiplied, for a person.
  std::string products_text() const;
  const std::string& architecture() const { return architecture_; }

 private:
  std::string architecture_;
  std::set<std::string> ahead_;  // products, all of one type
  std::string pipeline_ = "NoPipeline";
  std::map<std::string, std::uint32_t> numbers_;
  bool library_ = false;  // whether library lanes multiply
};

}  // namespace tileway::cuda
