#include "exec/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tileway/error.hpp"

namespace tileway {
namespace {

std::string describe(const ProvenPlan& proven) {
  const Plan& plan = proven.plan();
  std::string text = "the plan is " + plan.name + "\n";
  for (const std::string& line : plan.description) text += line + "\n";
  text += "the schedule is " + plan.schedule + "\n";
  text += "the topology is " + plan.topology.to_text() + "\n";
  return text + fmt::format("the fingerprint of the plan is {:016x}\n", proven.fingerprint());
}

std::string line_of(const std::string& text, std::size_t number) {
  std::size_t start = 0;
  for (; number > 0 && start < text.size(); --number) start = text.find('\n', start) + 1;
  return start < text.size() ? text.substr(start, text.find('\n', start) - start) : "nothing more";
}

}  // namespace

void agree(Group& group, const ProvenPlan& proven) {
  const Plan& plan = proven.plan();
  TW_REQUIRE(plan.ranks() == group.size(), ErrorKind::invalid, .where = plan.name,
             .what = "the plan is for another number of ranks than the group has",
             .expected = std::to_string(plan.ranks()), .got = std::to_string(group.size()));
  const std::vector<std::string> texts = group.all_gather(describe(proven), "agreement on the plan");
  for (int rank = 1; rank < group.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    std::size_t line = 0;
    while (line_of(texts[0], line) == line_of(texts[rank], line)) ++line;
    throw Error(ErrorKind::mismatch, {.where = line_of(texts[0], 0).substr(12),
                                      .what = "the ranks were given different arguments",
                                      .got = fmt::format("on rank 0 {}, on rank {} {}", line_of(texts[0], line), rank,
                                                         line_of(texts[rank], line)),
                                      .hint = "Give every rank the same program, shapes, dtypes and schedule"});
  }
}

}  // namespace tileway
