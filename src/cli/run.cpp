// tileway run: runs a plan and compares what comes out with the interpreter.
#include <fmt/format.h>

#include "cli/command.hpp"
#include "tileway/error.hpp"
#include "tileway/inputs.hpp"

namespace tileway::cli {
namespace {

int run(const Options& options) {
  TW_REQUIRE(options.sizes.size() <= 1, ErrorKind::invalid, .where = "--size", .what = "run takes one size");
  const Program program = make_program(options);
  const Place place = choose_place(options.executor, program.world());
  int status = kDone;
  for (const std::string& schedule : schedule_names(options, schedule_of(place))) {
    const ProvenPlan plan = ProvenPlan::prove(
        lower(program, Schedule::named(program, schedule), make_topology(options, program.world(), place)).plan);
    status = std::max(
        status, on_ranks(place, program.world(), [&](Group& group) {
          const std::unique_ptr<Executor> owner = make_executor(place, group, plan, options);
          Executor& executor = *owner;
          Bindings inputs = random_inputs(program, options.seed, Fill::normal);
          set_inputs(executor, inputs, group.rank());
          for (int i = 0; i < options.repeat; ++i) executor.run();
          const Bindings outputs = collect_outputs(group, executor, program);
          if (group.rank() != 0) return kDone;
          for (int i = 1; i < options.repeat; ++i) interpret(program, inputs);  // what the program updates moves on
          const Accuracy accuracy = measure_accuracy(program, inputs, outputs);
          const bool fine = accuracy.error <= accuracy.allowed;
          fmt::print(
              "{} {} on {} ranks ({}), {} run{}: error {:.3g} against fp64, allowed {:.3g} (the same dtype's "
              "own is {:.3g}): {}\n",
              program.name(), schedule, program.world(), place.name(), options.repeat, options.repeat == 1 ? "" : "s",
              accuracy.error, accuracy.allowed, accuracy.reference, fine ? "right" : "WRONG");
          return fine ? kDone : kNo;
        }));
  }
  return status;
}

}  // namespace

void add_run(CLI::App& app, int& status) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("run", "run once or several times and compare with the interpreter");
  add_common(*command, *options);
  command->add_option("--repeat", options->repeat, "runs")->check(CLI::Range(1, 1000000))->capture_default_str();
  command->add_option("--link", options->link_gb_s, "slow the link to this many GB/s");
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace tileway::cli
