// Kernels that tests are about to need: CudaExecutor.ProcessesCompileAllKernels compiles them on all cores before.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "tileway/plan.hpp"

namespace tileway::testing {

class KernelsAhead {
 public:
  using Add = std::function<void(const Plan&)>;
  using List = std::function<void(const Add&)>;  // adds the plans of a test

  explicit KernelsAhead(List list) { all().push_back(std::move(list)); }
  static std::vector<List>& all() {
    static std::vector<List> lists;
    return lists;
  }
};

}  // namespace tileway::testing
