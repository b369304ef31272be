// What the subcommands of `tileway` share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tileway/executor.hpp"
#include "tileway/group.hpp"
#include "tileway/interpreter.hpp"
#include "tileway/place.hpp"
#include "tileway/program.hpp"
#include "tileway/schedule.hpp"

namespace tileway::cli {

// The command's answers; see docs. An Error brings its own.
constexpr int kDone = 0;
constexpr int kNo = 1;

struct Options {
  std::string op;  // an operator, or a program file
  int ranks = 0;   // 0: 2, or what the file or the launcher says
  std::vector<std::string> sizes;
  std::string dtype = "f32";
  std::string executor = "auto";
  std::string schedule;
  std::string topology;
  std::string json;
  std::string plan;
  int repeat = 1;
  std::uint64_t seed = 1;
  double link_gb_s = 0;
  bool full = false;
};

// Adds OP and the options that every command on an operator takes.
void add_common(CLI::App& command, Options& options);

// "513x1025x1023"; throws Error (invalid).
std::vector<std::int64_t> parse_size(const std::string& text);
// The operator or file with this size; ranks as asked.
Program make_program(const Options& options, const std::vector<std::int64_t>& size);
// The same with the size that --size gives, of which there is at most one, or the default.
Program make_program(const Options& options);
// The schedules that --schedule names, or that `otherwise` does where it is not given: one, or unfused and overlapped
// for "all".
std::vector<std::string> schedule_names(const Options& options, std::string_view otherwise);
// The topology for a run here, or as --topology says. Its ranks must be the program's.
Topology make_topology(const Options& options, int ranks, const Place& place = {});

// The plans of the schedules that --schedule names (by default the place's), or the one in a plan file.
std::vector<Plan> make_plans(const Options& options, const Place& place = {});
// What was proven, in two lines.
std::string proof_text(const Proof& proof);

// Runs `body` on every rank: those of a launcher if one has started this process, else `ranks` started here. Returns
// what rank 0's body returned (under a launcher: this rank's).
int on_ranks(const Place& place, int ranks, const std::function<int(Group&)>& body);

// Sets inputs, and collects what all ranks hold of every output.
void set_inputs(Executor& executor, const Bindings& inputs, int rank);
Bindings collect_outputs(Group& group, Executor& executor, const Program& program);

// The place's executor, with the host's link slowed as --link says.
std::unique_ptr<Executor> make_executor(const Place& place, Group& group, const ProvenPlan& plan,
                                        const Options& options, bool trace = false);

// Writes a file; throws Error (invalid) naming it when that fails.
void write_file(const std::string& path, const std::string& text);
std::string read_file(const std::string& path);

// Registers a subcommand; `status` receives the answer when it has run.
void add_doctor(CLI::App& app, int& status);
void add_run(CLI::App& app, int& status);
void add_bench(CLI::App& app, int& status);
void add_explain(CLI::App& app, int& status);
void add_verify(CLI::App& app, int& status);
void add_explore(CLI::App& app, int& status);
void add_compile(CLI::App& app, int& status);

}  // namespace tileway::cli
