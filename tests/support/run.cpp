#include "support/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "tileway/error.hpp"

namespace tileway::testing {

Outcome run_threads(const Program& program, const Plan& plan, const std::vector<Bindings>& inputs,
                    const MakeExecutor& make) {
  Outcome outcome;
  outcome.inputs = inputs.back();
  outcome.traces.resize(program.world());
  for (const auto& output : program.outputs()) outcome.outputs[output.name].resize(program.world());
  const ProvenPlan proven = ProvenPlan::prove(plan);
  Group::threads(program.world(), [&](Group& group) {
    const std::unique_ptr<Executor> owner = make(group, proven);
    Executor& executor = *owner;
    const int rank = group.rank();
    for (const Bindings& set : inputs) {
      for (const auto& [name, parts] : set) {
        if (executor.holds(name)) executor.set_input(name, parts[rank]);
      }
      executor.run();
    }
    for (auto& [name, parts] : outcome.outputs) {
      if (executor.holds(name)) parts[rank] = executor.get(name);
    }
    for (auto& [name, parts] : outcome.inputs) {
      if (executor.holds(name)) parts[rank] = executor.get(name);
    }
    outcome.traces[rank] = executor.trace();
  });
  return outcome;
}

Outcome run_threads(const Program& program, const Plan& plan, const std::vector<Bindings>& inputs,
                    HostExecutor::Options options) {
  return run_threads(program, plan, inputs, [&](Group& group, const ProvenPlan& proven) {
    return std::make_unique<HostExecutor>(group, proven, options);
  });
}

void expect_same(const Bindings& expected, const Bindings& got, const std::string& context) {
  for (const auto& [name, parts] : expected) {
    ASSERT_TRUE(got.contains(name)) << context;
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      const Array& other = got.at(name)[rank];
      ASSERT_EQ(name_of(parts[rank].dtype()), name_of(other.dtype())) << context;
      ASSERT_EQ(parts[rank].shape(), other.shape()) << context;
      // Equal as numbers: a kernel may give -0 where the definition gives 0.
      EXPECT_EQ(max_difference(parts[rank], other), 0) << fmt::format("{}: '{}' of rank {}", context, name, rank);
    }
  }
}

void expect_exact(const Program& program, const Schedule& schedule, const Topology& topology, std::uint64_t seed) {
  expect_exact(program, schedule, topology, seed,
               [](Group& group, const ProvenPlan& plan) { return std::make_unique<HostExecutor>(group, plan); });
}

void expect_exact(const Program& program, const Schedule& schedule, const Topology& topology, std::uint64_t seed,
                  const MakeExecutor& make) {
  Bindings inputs = random_inputs(program, seed, Fill::integers);
  const Plan plan = lower(program, schedule, topology).plan;
  const Outcome outcome =
      run_threads(program, plan, {random_inputs(program, seed + 1000, Fill::integers), inputs}, make);
  const std::string context =
      fmt::format("{} {} seed {} {}", program.name(), schedule.name(), seed, topology.to_text());
  const Bindings expected = interpret(program, inputs);
  expect_same(expected, outcome.outputs, context);
  expect_same(inputs, outcome.inputs, context + " (state)");
}

bool takes(const Operator& op, DType dtype) {
  try {
    make_program(op, 1, dtype, {});
    return true;
  } catch (const Error&) {
    return false;
  }
}

Topology small_topology(int ranks, int lanes, int copy) {
  return Topology::parse(fmt::format("ranks={},lanes={},copy={}", ranks, lanes, copy));
}

}  // namespace tileway::testing
