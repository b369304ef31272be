// tileway explain: program, schedule, plan and the predicted timeline.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/command.hpp"
#include "exec/cuda/variant.hpp"
#include "tileway/error.hpp"

namespace tileway::cli {
namespace {

// When each operation is busy, over all ranks.
std::string timeline(const Lowered& lowered) {
  const Plan& plan = lowered.plan;
  double end = 0;
  std::map<std::int32_t, Lowered::Span> spans;
  for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
    const Lowered::Span& span = lowered.predicted[t];
    auto [found, fresh] = spans.try_emplace(plan.tasks[t].origin, span);
    found->second.begin_us = std::min(found->second.begin_us, span.begin_us);
    found->second.end_us = std::max(found->second.end_us, span.end_us);
    end = std::max(end, span.end_us);
  }
  constexpr int kWidth = 60;
  std::string text = fmt::format("predicted: {:.1f} us\n", end);
  for (const auto& [origin, span] : spans) {
    const int from = static_cast<int>(span.begin_us / end * kWidth);
    const int to = std::max(from + 1, static_cast<int>(span.end_us / end * kWidth));
    text += fmt::format("  {:<24} |{:{}}{:=<{}}{:{}}| {:9.1f} to {:9.1f}\n", plan.origins[origin], "", from, "",
                        to - from, "", std::max(0, kWidth - to), span.begin_us, span.end_us);
  }
  return text;
}

// The most bytes that are between ranks at one time, as predicted.
std::string in_flight(const Lowered& lowered) {
  std::vector<std::pair<double, std::int64_t>> changes;  // ends before beginnings at the same time
  for (std::size_t t = 0; t < lowered.plan.tasks.size(); ++t) {
    const std::int64_t bytes = lowered.plan.bytes_sent(lowered.plan.tasks[t]);
    if (bytes == 0) continue;
    changes.emplace_back(lowered.predicted[t].begin_us, bytes);
    changes.emplace_back(lowered.predicted[t].end_us, -bytes);
  }
  std::sort(changes.begin(), changes.end());
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (const auto& [time, bytes] : changes) most = std::max(most, now += bytes);
  return fmt::format("  at most {} bytes in flight at one time\n", most);
}

// What multiplies on GPUs of each kind, for a plan with products.
std::string products(const Plan& plan) {
  std::string text;
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
    std::string how;
    try {
      how = cuda::KernelText(plan, architecture).products_text();
    } catch (const Error& error) {
      how = fmt::format("refused ({})", error.what());
    }
    if (how == "none") return {};
    text += fmt::format("{}{} {}", text.empty() ? "  products on GPUs: " : "; ", architecture, how);
  }
  return text + "\n";
}

int explain(const Options& options) {
  TW_REQUIRE(options.sizes.size() <= 1, ErrorKind::invalid, .where = "--size", .what = "explain takes one size");
  const Program program = make_program(options);
  fmt::print("{}\n", program.to_text());
  for (const std::string& name : schedule_names(options, "overlapped")) {
    const Lowered lowered = lower(program, Schedule::named(program, name), make_topology(options, program.world()));
    const Verdict verdict = verify(lowered.plan);
    fmt::print("{}\n{}{}\n{}{}\n", to_text(lowered.plan, options.full), verdict.proven() ? "proven:\n" : "refused:\n",
               verdict.proven() ? proof_text(verdict.proof) : verdict.refusal->text, timeline(lowered),
               in_flight(lowered) + products(lowered.plan));
    if (!options.plan.empty()) write_file(options.plan, to_json(lowered.plan));
  }
  if (!options.json.empty()) write_file(options.json, program.to_json());
  return kDone;
}

}  // namespace

void add_explain(CLI::App& app, int& status) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("explain", "show program, schedule, plan and predicted timeline");
  add_common(*command, *options);
  command->add_flag("--full", options->full, "every task of the plan");
  command->add_option("--plan", options->plan, "write the plan as JSON");
  command->add_option("--json", options->json, "write the program as JSON");
  command->callback([options, &status] { status = explain(*options); });
}

}  // namespace tileway::cli
