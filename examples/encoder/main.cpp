// Runs the encoder tensor-parallel on CPU ranks or GPUs, and holds it against an independent implementation and against
// one rank.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "encoder.hpp"
#include "tileway/error.hpp"
#include "tileway/executor.hpp"
#include "tileway/explore.hpp"
#include "tileway/place.hpp"
#include "tileway/schedule.hpp"
#include "tileway/verify.hpp"

namespace tileway::encoder {
namespace {

using Clock = std::chrono::steady_clock;

// What fp32 leaves between two orders of summation over six layers, on embeddings of length 1; measured: 3e-7.
constexpr double kAllowed = 1e-6;
constexpr int kTimedRuns = 7;

struct Arguments {
  std::string batch;
  std::string fixture;
  std::string executor = "auto";
  std::vector<int> ranks{4, 5};
};

nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  const nlohmann::json value = nlohmann::json::parse(file, nullptr, false);
  TW_REQUIRE(!value.is_discarded(), ErrorKind::invalid, .where = path, .what = "missing, or not JSON",
             .hint = "examples/encoder/prepare.py writes it");
  return value;
}

Batch read_batch(const nlohmann::json& json) {
  Batch batch;
  for (const auto& row : json.at("input_ids")) {
    batch.tokens = static_cast<std::int64_t>(row.size());
    ++batch.sentences;
    for (const auto& id : row) batch.ids.push_back(id.get<double>());
  }
  for (const auto& row : json.at("attention_mask")) {
    for (const auto& value : row) batch.mask.push_back(value.get<double>());
  }
  return batch;
}

// One schedule on every rank of a group: the embeddings, the slowest rank's median time, and each rank's summary.
struct Measured {
  Array embeddings;
  double median_us = 0;
  std::vector<TraceSummary> summaries;
};

Measured measure(const Place& place, Group& group, const Program& program, const std::string& schedule,
                 const Bindings& inputs) {
  const ProvenPlan proven =
      ProvenPlan::prove(lower(program, Schedule::named(program, schedule), topology_of(place, program.world())).plan);
  const Plan& plan = proven.plan();
  const std::unique_ptr<Executor> owner = make_executor(place, group, proven, true);
  Executor& executor = *owner;
  for (const auto& [name, parts] : inputs) executor.set_input(name, parts[group.rank()]);
  executor.run();
  std::vector<double> times;
  for (int i = 0; i < kTimedRuns; ++i) {
    group.barrier("timed run");
    const auto begin = Clock::now();
    executor.run();
    group.barrier("run ended");
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  Measured measured{executor.get("embeddings"), times[kTimedRuns / 2], {}};
  const TraceSummary mine = summarise(plan, executor.trace());
  const std::string bytes(reinterpret_cast<const char*>(&mine), sizeof(mine));
  for (const std::string& other : group.all_gather(bytes, "collecting summaries")) {
    TraceSummary summary;
    std::memcpy(&summary, other.data(), sizeof(summary));
    measured.summaries.push_back(summary);
  }
  return measured;
}

void print_similarities(const Array& embeddings, const std::vector<std::string>& sentences) {
  const std::int64_t count = embeddings.shape()[0];
  const std::int64_t width = embeddings.shape()[1];
  fmt::print("cosine similarity\n     ");
  for (std::int64_t j = 0; j < count; ++j) fmt::print("{:>6}", j + 1);
  fmt::print("\n");
  for (std::int64_t i = 0; i < count; ++i) {
    fmt::print("  {:>3}", i + 1);
    for (std::int64_t j = 0; j < count; ++j) {
      double dot = 0;
      for (std::int64_t c = 0; c < width; ++c) dot += embeddings.at(i * width + c) * embeddings.at(j * width + c);
      fmt::print("{:>6.2f}", dot);
    }
    fmt::print("  {}\n", sentences[i]);
  }
}

void require_close(const Array& expected, const Array& got, const std::string& to) {
  const double difference = max_difference(expected, got);
  fmt::print("  largest difference from {:<58} {:.2e}\n", to, difference);
  TW_REQUIRE(difference <= kAllowed, ErrorKind::lost, .where = "encoder", .what = "the embeddings differ from " + to,
             .expected = fmt::format("at most {:.0e}", kAllowed), .got = fmt::format("{:.2e}", difference));
}

void print_times(const Measured& unfused, const Measured& overlapped) {
  fmt::print("  unfused {:.1f} ms, overlapped {:.1f} ms: {:.2f}x (medians of {} runs)\n", unfused.median_us * 1e-3,
             overlapped.median_us * 1e-3, unfused.median_us / overlapped.median_us, kTimedRuns);
  fmt::print("  rank   computing   waiting   sending   of, ms (overlapped)\n");
  for (std::size_t rank = 0; rank < overlapped.summaries.size(); ++rank) {
    const TraceSummary& summary = overlapped.summaries[rank];
    fmt::print("  {:>4} {:>11.1f} {:>9.1f} {:>9.1f} {:>9.1f}\n", rank, summary.computing_us * 1e-3,
               summary.waiting_us * 1e-3, summary.sending_us * 1e-3, summary.span_us * 1e-3);
  }
}

// This encoder on a machine that is not here: the plan for eight GPUs is proven, and shown to need what it waits for.
void prove_for_gpus(const Config& config, const Batch& batch) {
  constexpr int kGpus = 8;
  const Program program = build(config, batch, kGpus);
  Plan plan = lower(program, Schedule::overlapped(program), Topology::gpus(kGpus)).plan;
  const auto begin = Clock::now();
  const Verdict verdict = verify(plan);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  TW_REQUIRE(verdict.proven(), ErrorKind::refused, .where = "encoder", .what = verdict.refusal->text);
  fmt::print("\n{} GPUs with {} lanes each: {} tasks, {} waits; proven in {:.2f} s free of deadlock and race,\n", kGpus,
             plan.topology.lanes, plan.tasks.size(), verdict.proof.waits, seconds);
  fmt::print("  over {} runs in a row: {} pairs of conflicting accesses, every one ordered\n", verdict.proof.runs,
             verdict.proof.pairs);
  // The middle one of the tasks that wait for several others.
  std::vector<TaskId> waiting;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const Task& task = plan.tasks[t];
    if (!task.waits.empty() && !task.reads.empty() && task.rank == kGpus / 2) waiting.push_back(static_cast<TaskId>(t));
  }
  const TaskId chosen = waiting.at(waiting.size() / 2);
  fmt::print("\nwithout the wait of task {} for signal {}:\n", chosen, plan.tasks[chosen].waits[0].signal);
  plan.tasks[chosen].waits.erase(plan.tasks[chosen].waits.begin());
  const Verdict broken = verify(plan);
  TW_REQUIRE(!broken.proven(), ErrorKind::lost, .where = "encoder",
             .what = "a plan without one of its waits was proven");
  fmt::print("refused, {}: {}", name_of(broken.refusal->fault), broken.refusal->text);
  const Exploration replayed = replay(plan, broken.refusal->order);
  TW_REQUIRE(replayed.finding.has_value(), ErrorKind::lost, .where = "encoder", .what = "the order went well");
  fmt::print("replayed on this machine, {} steps: {}", replayed.steps, replayed.finding->text);
}

void run(const Arguments& arguments) {
  const nlohmann::json prepared = read_json(arguments.batch);
  const auto sentences = prepared.at("sentences").get<std::vector<std::string>>();
  const Batch batch = read_batch(prepared);
  const SafeTensors weights = SafeTensors::open(prepared.at("weights").get<std::string>());
  const Config config;

  Array alone;
  Group::threads(1, [&](Group& group) {
    const Program program = build(config, batch, 1);
    alone = measure({}, group, program, "unfused", load_inputs(program, weights, batch)).embeddings;
  });
  print_similarities(alone, sentences);

  const nlohmann::json fixture = read_json(arguments.fixture);
  const bool known = fixture.at("sentences") == prepared.at("sentences");
  std::vector<double> flat;
  for (const auto& row : fixture.at("embeddings")) {
    for (const auto& value : row) flat.push_back(value.get<double>());
  }
  const auto check_fixture = [&](const Array& got) {
    if (!known) return;
    require_close(Array::from(DType::f32, alone.shape(), flat), got,
                  "the fixture (" + fixture.at("made_with").get<std::string>() + ")");
  };
  fmt::print("\n1 rank on the host\n");
  check_fixture(alone);
  for (int ranks : arguments.ranks) {
    const Program program = build(config, batch, ranks);
    const Bindings inputs = load_inputs(program, weights, batch);
    const Place place = choose_place(arguments.executor, ranks);
    fmt::print("\n{} ranks ({}), {} sentences of up to {} tokens\n", ranks, place.name(), batch.sentences,
               batch.tokens);
    std::fflush(stdout);
    start_ranks(place, ranks, [&](Group& group) {
      const Measured unfused = measure(place, group, program, "unfused", inputs);
      const Measured overlapped = measure(place, group, program, "overlapped", inputs);
      if (group.rank() != 0) return;
      check_fixture(overlapped.embeddings);
      require_close(alone, overlapped.embeddings, "one rank");
      require_close(unfused.embeddings, overlapped.embeddings, "the unfused schedule");
      print_times(unfused, overlapped);
    });
  }
  prove_for_gpus(config, batch);
}

}  // namespace
}  // namespace tileway::encoder

int main(int argc, char** argv) {
  CLI::App app{"A sentence encoder, tensor-parallel"};
  tileway::encoder::Arguments arguments;
  app.add_option("--batch", arguments.batch, "what prepare.py wrote")->required();
  app.add_option("--fixture", arguments.fixture, "expected embeddings")->required();
  app.add_option("--ranks", arguments.ranks, "how many ranks, one run each")->check(CLI::Range(1, 64));
  app.add_option("--executor", arguments.executor, "auto, host or cuda");
  try {
    app.parse(argc, argv);
    tileway::encoder::run(arguments);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const tileway::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.exit_status();
  } catch (const std::exception& error) {
    fmt::print(stderr, "[tileway] {}\n", error.what());
    return 1;
  }
}
