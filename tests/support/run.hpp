// Running programs in tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tileway/executor.hpp"
#include "tileway/inputs.hpp"
#include "tileway/interpreter.hpp"
#include "tileway/ops.hpp"
#include "tileway/schedule.hpp"

namespace tileway::testing {

// What every rank had after the last of several runs, one for each set of inputs, with ranks as threads: outputs by
// name and rank, and the inputs as they are then.
struct Outcome {
  Bindings outputs;
  Bindings inputs;
  std::vector<std::vector<TraceEvent>> traces;  // by rank, of the last run
};
using MakeExecutor = std::function<std::unique_ptr<Executor>(Group&, const ProvenPlan&)>;
Outcome run_threads(const Program& program, const Plan& plan, const std::vector<Bindings>& inputs,
                    const MakeExecutor& make);
Outcome run_threads(const Program& program, const Plan& plan, const std::vector<Bindings>& inputs,
                    HostExecutor::Options options = {});

// Every element is the same on every rank, for every name.
void expect_same(const Bindings& expected, const Bindings& got, const std::string& context);

// Runs `schedule` of the program on integers, after a run on other integers whose results would show if they were left,
// and expects the interpreter's values.
void expect_exact(const Program& program, const Schedule& schedule, const Topology& topology, std::uint64_t seed);
void expect_exact(const Program& program, const Schedule& schedule, const Topology& topology, std::uint64_t seed,
                  const MakeExecutor& make);

// Whether an operator takes inputs of a dtype: e4m3 is not computed with by all.
bool takes(const Operator& op, DType dtype);

// A topology with few lanes, whatever the machine.
Topology small_topology(int ranks, int lanes = 2, int copy = 1);

}  // namespace tileway::testing
