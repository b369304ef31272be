// tileway explore: runs a plan on the CPU in adversarial orders.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "cli/command.hpp"
#include "tileway/explore.hpp"
#include "tileway/inputs.hpp"
#include "tileway/interpreter.hpp"

namespace tileway::cli {
namespace {

// Whether the values are the interpreter's in every order; prints the first that are not.
int compare_values(const Options& options, std::uint64_t seeds) {
  const Program program = make_program(options);
  std::vector<PartsByName> inputs;
  std::vector<Bindings> expected;
  for (std::uint64_t run = 0; run < 2; ++run) {
    inputs.push_back(random_inputs(program, options.seed + run, Fill::integers));
    Bindings copy = inputs.back();
    expected.push_back(interpret(program, copy));
  }
  for (const Plan& plan : make_plans(options)) {
    for (std::uint64_t seed = options.seed; seed < options.seed + seeds; ++seed) {
      const ValueExploration result = explore_values(plan, seed, inputs);
      if (!result.exploration.finding && std::equal(expected.begin(), expected.end(), result.outputs.begin())) continue;
      fmt::print(
          "{} {}: seed {}: {}", plan.name, plan.schedule, seed,
          result.exploration.finding ? result.exploration.finding->text : "other values than the interpreter's\n");
      return kNo;
    }
    fmt::print("{} {}: {} seeds, the interpreter's values every time\n", plan.name, plan.schedule, seeds);
  }
  return kDone;
}

int explore_one(const Plan& plan, std::uint64_t first, std::uint64_t seeds, const std::string& shrunk) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  std::size_t steps = 0;
  std::optional<std::uint64_t> outcome;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    if (terminal) fmt::print("\r{} of {} seeds", seed - first, seeds);
    const Exploration exploration = explore(plan, seed);
    steps += exploration.steps;
    std::string problem = exploration.finding ? exploration.finding->text : "";
    if (problem.empty() && outcome.value_or(exploration.outcome) != exploration.outcome)
      problem = "the outputs were made from other tasks than under the seeds before\n";
    outcome = exploration.outcome;
    if (problem.empty()) continue;
    fmt::print("{}{} {}: seed {} ({}) fails{}\n{}  --seed {} --seeds 1 replays it\n", terminal ? "\r" : "", plan.name,
               plan.schedule, seed, name_of(adversary_of(seed)),
               exploration.finding ? fmt::format(", {}", name_of(exploration.finding->fault)) : "", problem, seed);
    if (!shrunk.empty() && exploration.finding) {
      const Plan least = shrink(plan, seed);
      write_file(shrunk, to_json(least));
      fmt::print("  {} of its {} tasks are enough; they are in {}\n", least.tasks.size(), plan.tasks.size(), shrunk);
    }
    return kNo;
  }
  fmt::print("{}{} {}: {} seeds, {} steps, nothing found\n", terminal ? "\r" : "", plan.name, plan.schedule, seeds,
             steps);
  return kDone;
}

}  // namespace

void add_explore(CLI::App& app, int& status) {
  struct Choices {
    Options options;
    std::uint64_t seeds = 100;
    std::string shrunk;
    bool values = false;
  };
  auto choices = std::make_shared<Choices>();
  CLI::App* command = app.add_subcommand("explore", "run a plan on the CPU in adversarial orders, looking for faults");
  add_common(*command, choices->options);
  command->add_option("--seeds", choices->seeds, "orders to try, from --seed on")
      ->check(CLI::Range(1, 1000000000))
      ->capture_default_str();
  command->add_option("--shrink", choices->shrunk, "write a failing plan, as small as it gets, to this file");
  command->add_flag("--values", choices->values, "compute, amid poison, and compare with the interpreter");
  command->callback([choices, &status] {
    if (choices->values) {
      status = compare_values(choices->options, choices->seeds);
      return;
    }
    for (const Plan& plan : make_plans(choices->options))
      status = std::max(status, explore_one(plan, choices->options.seed, choices->seeds, choices->shrunk));
  });
}

}  // namespace tileway::cli
