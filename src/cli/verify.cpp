// tileway verify: the proof of a plan, or the counterexample.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "tileway/verify.hpp"

namespace tileway::cli {
namespace {

nlohmann::json to_json(const Refusal& refusal) {
  nlohmann::json out{{"fault", name_of(refusal.fault)}, {"text", refusal.text}, {"tasks", nlohmann::json::array()}};
  for (const Instance& instance : refusal.tasks)
    out["tasks"].push_back({{"run", instance.run}, {"task", instance.task}, {"rank", instance.rank}});
  if (refusal.signal >= 0) out["signal"] = refusal.signal;
  if (refusal.buffer >= 0) {
    out["buffer"] = refusal.buffer;
    out["region"] = to_string(refusal.region);
  }
  return out;
}

int verify(const Options& options, const std::vector<std::string>& files) {
  std::vector<Plan> plans = make_plans(options);
  for (const std::string& file : files) plans.push_back(plan_from_json(read_file(file)));
  std::vector<const Plan*> together;
  for (const Plan& plan : plans) together.push_back(&plan);
  int status = kDone;
  nlohmann::json out = nlohmann::json::array();
  const auto report = [&](const std::string& what, const Verdict& verdict) {
    if (!verdict.proven()) status = kNo;
    fmt::print("{}: {}\n", what,
               verdict.proven() ? "proven" : fmt::format("refused, {}", name_of(verdict.refusal->fault)));
    if (verdict.proven()) {
      fmt::print("{}", proof_text(verdict.proof));
    } else {
      fmt::print("{}", verdict.refusal->text);
    }
    out.push_back({{"plan", what}, {"proven", verdict.proven()}});
    if (!verdict.proven()) out.back()["refusal"] = to_json(*verdict.refusal);
  };
  if (files.empty()) {
    for (const Plan& plan : plans) report(plan.name + " " + plan.schedule, tileway::verify(plan));
  } else {
    report(fmt::format("{} plans, each alone and every two in a row", plans.size()), tileway::verify(together));
  }
  if (!options.json.empty()) write_file(options.json, out.dump(1) + "\n");
  return status;
}

}  // namespace

std::string proof_text(const Proof& proof) {
  return fmt::format(
      "  {} runs of it, {} instances of tasks in {} lanes, {} waits a run; longest chain of waits {}\n"
      "  {} pairs of conflicting accesses, all ordered; no deadlock, no signal runs ahead, all that is read is "
      "written\n",
      proof.runs, proof.instances, proof.lanes, proof.waits, proof.longest_chain, proof.pairs);
}

void add_verify(CLI::App& app, int& status) {
  auto options = std::make_shared<Options>();
  auto files = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand("verify", "prove a plan free of deadlock and race, or show how it goes wrong");
  add_common(*command, *options);
  command->add_option("PLANS", *files, "more plan files, of one group: proven alone and in every order of two");
  command->add_option("--json", options->json, "write the verdicts as JSON");
  command->callback([options, files, &status] { status = verify(*options, *files); });
}

}  // namespace tileway::cli
