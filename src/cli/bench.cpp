// tileway bench: schedules side by side against the bound, each checked against the oracle.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/machine.hpp"
#include "tileway/error.hpp"
#include "tileway/inputs.hpp"

namespace tileway::cli {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(std::lround(q * static_cast<double>(values.size() - 1)))];
}

// For each position, the slowest rank's value.
std::vector<double> slowest(Group& group, const std::vector<double>& mine) {
  std::string bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(double));
  std::vector<double> result = mine;
  for (const std::string& other : group.all_gather(bytes, "collecting times")) {
    for (std::size_t i = 0; i < result.size(); ++i) {
      double value = 0;
      std::memcpy(&value, other.data() + i * sizeof(double), sizeof(double));
      result[i] = std::max(result[i], value);
    }
  }
  return result;
}

std::int64_t most_sent_by_a_rank(const Plan& plan) {
  std::vector<std::int64_t> bytes(plan.ranks());
  for (const Task& task : plan.tasks) bytes[task.rank] += plan.bytes_sent(task);
  return *std::max_element(bytes.begin(), bytes.end());
}

// GB/s at which all ranks at once send to all others on GPUs: an all_gather of 64 MiB of each.
double measure_gpu_link(const Place& place, Group& group) {
  constexpr std::int64_t kRows = 4096;
  constexpr std::int64_t kColumns = 8192;
  constexpr int kRounds = 10;
  Program program("link", group.size());
  program.output("y", all_gather(program.input("x", DType::bf16, {group.size() * kRows, kColumns}, Shard(0))));
  const ProvenPlan plan =
      ProvenPlan::prove(lower(program, Schedule::named(program, place.linked ? "unfused" : schedule_of(place)),
                              topology_of(place, group.size()))
                            .plan);
  const double us = quantile(slowest(group, tileway::make_executor(place, group, plan)->time_runs(kRounds)), 0.5);
  return static_cast<double>(most_sent_by_a_rank(plan.plan())) / us * 1e-3;
}

// GB/s at which all ranks at once write to their neighbours.
double measure_link(const Place& place, Group& group) {
  if (place.cuda && group.size() > 1) return measure_gpu_link(place, group);
  constexpr std::size_t kBytes = 16 << 20;
  constexpr int kRounds = 5;
  const SymmetricMemory memory = group.allocate(kBytes);
  const std::vector<std::byte> source(kBytes, std::byte{1});
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    group.barrier("measuring the link");
    const auto begin = Clock::now();
    std::memcpy(memory.on((group.rank() + 1) % group.size()).data(), source.data(), kBytes);
    times.push_back(us_since(begin));
  }
  group.barrier("link measured");
  return static_cast<double>(kBytes) / quantile(slowest(group, times), 0.5) * 1e-3;
}

struct Row {
  std::string name;
  std::string kind;
  std::vector<double> us;
  double max_error = 0;
  bool exact = false;
  bool right = true;                            // the error is within what is allowed
  std::map<Engine, std::int64_t> bytes_sent{};  // by all ranks, in a run
};

struct Measured {
  std::vector<Row> rows;
  double bound_us = 0;
  double link_gb_s = 0;
};

// Equal as numbers: a kernel may give -0 where the definition gives 0.
bool equal(const Bindings& expected, const Bindings& got) {
  for (const auto& [name, parts] : expected) {
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      if (max_difference(parts[rank], got.at(name)[rank]) != 0) return false;
    }
  }
  return true;
}

// Errors are taken on normal inputs, exactness on integers; both after the outputs were overwritten by other inputs'
// results.
void check(Group& group, Executor& executor, const Program& program, std::uint64_t seed, Row& row) {
  for (const Fill fill : {Fill::integers, Fill::normal}) {
    Bindings inputs = random_inputs(program, seed + static_cast<std::uint64_t>(fill), fill);
    set_inputs(executor, inputs, group.rank());
    executor.run();
    const Bindings outputs = collect_outputs(group, executor, program);
    if (group.rank() != 0) continue;
    if (fill == Fill::normal) {
      const Accuracy accuracy = measure_accuracy(program, inputs, outputs);
      row.max_error = accuracy.error;
      row.right = accuracy.error <= accuracy.allowed;
    } else {
      row.exact = equal(interpret(program, inputs), outputs);
    }
  }
}

Measured measure(Group& group, const Options& options, const Program& program, const Place& place) {
  Measured measured;
  measured.link_gb_s = measure_link(place, group);
  for (const std::string& name : schedule_names(options, place.linked ? "all" : schedule_of(place))) {
    const ProvenPlan proven = ProvenPlan::prove(
        lower(program, Schedule::named(program, name), make_topology(options, program.world(), place)).plan);
    const Plan& plan = proven.plan();
    const std::unique_ptr<Executor> owner = make_executor(place, group, proven, options, true);
    Executor& executor = *owner;
    set_inputs(executor, random_inputs(program, options.seed, Fill::normal), group.rank());
    Row row{name, "schedule", {}, 0, false};
    Row compute{"compute", "compute", {}, 0, true};
    row.us = slowest(group, executor.time_runs(options.repeat));
    for (const Lane& lane : plan.lanes) {
      for (TaskId task : lane.tasks) row.bytes_sent[lane.engine] += plan.bytes_sent(plan.tasks[task]);
    }
    for (int i = 0; i < options.repeat; ++i) {
      group.barrier("a traced run");
      executor.run();
      const TraceSummary summary = summarise(plan, executor.trace());
      compute.us.push_back(std::max(summary.computing_us / plan.topology.lanes,
                                    summary.library_us / std::max(1, plan.topology.library)));
    }
    compute.us = slowest(group, compute.us);
    check(group, executor, program, options.seed, row);
    if (measured.rows.empty()) {
      // The bound: the first schedule's tasks on every lane that computes without a wait, or its bytes at the link's
      // speed.
      const double link = static_cast<double>(most_sent_by_a_rank(plan)) / measured.link_gb_s * 1e-3;
      measured.bound_us = std::max(quantile(compute.us, 0.5), link);
      compute.max_error = row.max_error;
      compute.exact = row.exact;
      measured.rows.push_back(std::move(compute));
    }
    measured.rows.push_back(std::move(row));
  }
  return measured;
}

Json to_json(const Measured& measured, const Program& program, const Options& options, const Place& place,
             const std::vector<std::int64_t>& size) {
  Json result{{"op", program.name()},
              {"size", size},
              {"dtype", options.dtype},
              {"ranks", program.world()},
              {"executor", place.name()}};
  result["bound_us"] = measured.bound_us;
  for (const Row& row : measured.rows) {
    result["rows"].push_back({{"name", row.name},
                              {"kind", row.kind},
                              {"median_us", quantile(row.us, 0.5)},
                              {"p10_us", quantile(row.us, 0.1)},
                              {"p90_us", quantile(row.us, 0.9)},
                              {"max_error", row.max_error},
                              {"exact", row.exact}});
    for (const auto& [engine, bytes] : row.bytes_sent)
      result["rows"].back()["bytes_sent"][std::string(name_of(engine))] = bytes;
  }
  return result;
}

void print(const Measured& measured, const Program& program, const Options& options, const Place& place,
           const std::string& size) {
  fmt::print("{} {} {} on {} ranks, {}; bound {:.1f} us (link {:.2f} GB/s)\n", program.name(), size, options.dtype,
             program.world(), place.name(), measured.bound_us, measured.link_gb_s);
  fmt::print("  {:<12} {:>12} {:>12} {:>12} {:>9} {:>11}  {}\n", "", "median us", "p10", "p90", "x bound", "max error",
             "exact");
  for (const Row& row : measured.rows) {
    const double median = quantile(row.us, 0.5);
    fmt::print("  {:<12} {:>12.1f} {:>12.1f} {:>12.1f} {:>9.2f} {:>11.3g}  {}\n", row.name, median,
               quantile(row.us, 0.1), quantile(row.us, 0.9), median / measured.bound_us, row.max_error,
               row.exact ? "yes" : "no");
  }
}

int bench(const Options& options) {
  Json report{{"version", TILEWAY_VERSION}, {"machine", machine_json()}, {"results", Json::array()}};
  std::vector<std::string> sizes = options.sizes;
  if (sizes.empty()) sizes.emplace_back();
  const Program first = make_program(options, parse_size(sizes[0]));
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const Place place = choose_place(options.executor, first.world());
  return on_ranks(place, first.world(), [&](Group& group) {
    int status = kDone;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (terminal && group.rank() == 0) fmt::print(stderr, "\r[{}/{}] {} ", i + 1, sizes.size(), sizes[i]);
      const Program program = make_program(options, parse_size(sizes[i]));
      const Measured measured = measure(group, options, program, place);
      if (group.rank() != 0) continue;
      if (terminal) fmt::print(stderr, "\r{:40}\r", "");
      print(measured, program, options, place, sizes[i].empty() ? "default size" : sizes[i]);
      report["machine"]["link_gb_s"] = measured.link_gb_s;
      report["results"].push_back(to_json(measured, program, options, place, parse_size(sizes[i])));
      for (const Row& row : measured.rows) status = std::max(status, row.right ? kDone : kNo);
    }
    if (group.rank() == 0 && !options.json.empty()) write_file(options.json, report.dump(1) + "\n");
    return status;
  });
}

}  // namespace

void add_bench(CLI::App& app, int& status) {
  auto options = std::make_shared<Options>();
  options->repeat = 20;
  CLI::App* command =
      app.add_subcommand("bench", "time schedules against the bound, with the error against the oracle");
  add_common(*command, *options);
  command->add_option("--repeat", options->repeat, "timed runs")->check(CLI::Range(1, 1000000))->capture_default_str();
  command->add_option("--link", options->link_gb_s, "slow the link to this many GB/s");
  command->add_option("--json", options->json, "write the results as JSON");
  command->callback([options, &status] { status = bench(*options); });
}

}  // namespace tileway::cli
