#include "support/ptx_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>

namespace tileway::testing {
namespace {

struct Instruction {
  std::string label;  // of a place; then nothing else
  bool guarded = false;
  std::string code;      // "red.release.sys.global.add.u32"
  std::string operands;  // "[%rd1], 1"
  std::string text() const { return code + " " + operands; }
};

std::string trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return std::string(text);
}

Instruction parse(std::string statement) {
  Instruction parsed;
  if (statement.starts_with("@")) {
    parsed.guarded = true;
    statement = trimmed(statement.substr(statement.find_first_of(" \t")));
  }
  const std::size_t space = statement.find_first_of(" \t");
  parsed.code = statement.substr(0, space);
  if (space != std::string::npos) parsed.operands = trimmed(statement.substr(space));
  return parsed;
}

// The instructions of a kernel in order, labels among them. Scopes and declarations are left out.
std::vector<Instruction> body_of(const std::string& ptx, std::string_view kernel) {
  const std::size_t entry = ptx.find(fmt::format(".entry {}(", kernel));
  if (entry == std::string::npos) throw std::invalid_argument(fmt::format("there is no kernel {} in the PTX", kernel));
  std::vector<Instruction> body;
  std::string statement;
  int vectors = 0;  // braces of an operand, as in {%r1, %r2}
  int depth = 0;
  for (std::size_t i = ptx.find('{', ptx.find(')', entry)); i < ptx.size(); ++i) {
    if (ptx.compare(i, 2, "//") == 0) {
      i = ptx.find('\n', i);
      continue;
    }
    const char c = ptx[i];
    const bool fresh = trimmed(statement).empty();
    if (c == '{' && fresh) {
      ++depth;
    } else if (c == '}' && vectors == 0) {
      if (--depth == 0) break;
    } else if (c == ':' && trimmed(statement).starts_with('$')) {
      body.push_back({.label = trimmed(statement), .code = {}, .operands = {}});
      statement.clear();
    } else if (c == ';') {
      const std::string whole = trimmed(statement);
      if (!whole.empty() && whole[0] != '.') body.push_back(parse(whole));
      statement.clear();
    } else {
      vectors += c == '{' ? 1 : c == '}' ? -1 : 0;
      statement += c;
    }
  }
  return body;
}

bool has(const Instruction& instruction, std::string_view part) {
  return instruction.code.find(part) != std::string::npos;
}
bool is(const Instruction& instruction, std::string_view beginning) { return instruction.code.starts_with(beginning); }

bool writes_global(const Instruction& instruction) {
  return is(instruction, "st.") && !has(instruction, ".shared") && !has(instruction, ".local") &&
         !has(instruction, ".param");
}
bool is_barrier(const Instruction& instruction) {
  return (is(instruction, "bar.") || is(instruction, "barrier.")) && !has(instruction, ".arrive") &&
         !has(instruction, ".warp");
}
bool raises(const Instruction& instruction) {
  return (is(instruction, "red.") || is(instruction, "atom.")) && has(instruction, ".add") &&
         !has(instruction, ".shared");
}

// What a path may have left undone.
enum : unsigned { kUnmet = 1, kUnwritten = 2 };

unsigned after(const Instruction& instruction, unsigned undone) {
  if (writes_global(instruction)) return undone | kUnmet;
  if (is(instruction, "cp.async.bulk.global")) return undone | kUnwritten;
  if (is(instruction, "cp.async.bulk.wait_group") && !has(instruction, ".read") && instruction.operands == "0")
    return undone & ~kUnwritten;
  if (is_barrier(instruction)) return undone & ~kUnmet;
  return undone;
}

// Before each instruction, what some path to it may have left undone; none where no path leads.
std::vector<std::optional<unsigned>> undone_before(const std::vector<Instruction>& body) {
  std::map<std::string, std::size_t> labels;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (!body[i].label.empty()) labels[body[i].label] = i;
  }
  std::vector<std::optional<unsigned>> before(body.size());
  std::set<std::size_t> open;
  const auto reach = [&](std::size_t i, unsigned undone) {
    if (i >= body.size()) return;
    if (before[i] && (*before[i] | undone) == *before[i]) return;
    before[i] = before[i].value_or(0) | undone;
    open.insert(i);
  };
  reach(0, 0);
  while (!open.empty()) {
    const std::size_t i = *open.begin();
    open.erase(open.begin());
    const Instruction& instruction = body[i];
    const bool jumps = is(instruction, "bra");
    const bool ends = is(instruction, "ret") || is(instruction, "exit");
    const unsigned undone = after(instruction, *before[i]);
    if (is(instruction, "brx")) throw std::invalid_argument("a jump through a table: " + instruction.text());
    if (jumps) reach(labels.at(instruction.operands), undone);
    if ((!jumps && !ends) || instruction.guarded) reach(i + 1, undone);
  }
  return before;
}

// Registers that hold what another one holds, by the first of them.
class Names {
 public:
  explicit Names(const std::vector<Instruction>& body) {
    for (const Instruction& instruction : body) {
      const std::size_t comma = instruction.operands.find(',');
      if (comma == std::string::npos) continue;
      if (!is(instruction, "mov.") && !is(instruction, "cvta.") && !is(instruction, "ld.param")) continue;
      const std::string from = trimmed(std::string_view(instruction.operands).substr(comma + 1));
      first_[trimmed(std::string_view(instruction.operands).substr(0, comma))] = first_of(from);
    }
  }
  // The address of an access: what stands in brackets, under its first name.
  std::string address(const Instruction& instruction) const {
    const std::size_t begin = instruction.operands.find('[');
    const std::size_t end = instruction.operands.find(']');
    if (begin == std::string::npos || end == std::string::npos) return "";
    return first_of(instruction.operands.substr(begin + 1, end - begin - 1));
  }

 private:
  std::string first_of(const std::string& name) const {
    const auto found = first_.find(name);
    return found == first_.end() ? name : found->second;
  }
  std::map<std::string, std::string> first_;
};

}  // namespace

std::vector<std::string> faults_of_put_signal(const std::string& ptx, std::string_view kernel) {
  const std::vector<Instruction> body = body_of(ptx, kernel);
  const auto undone = undone_before(body);
  std::vector<std::string> faults;
  int raised = 0;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (!raises(body[i]) || !undone[i]) continue;
    ++raised;
    const std::string text = body[i].text();
    if (!has(body[i], ".release") && !has(body[i], ".acq_rel")) faults.push_back("raised without release: " + text);
    if (!has(body[i], ".sys")) faults.push_back("raised at another scope than the system's: " + text);
    if ((*undone[i] & kUnmet) != 0) faults.push_back("raised before a barrier of those that stored: " + text);
    if ((*undone[i] & kUnwritten) != 0) faults.push_back("raised before bulk stores are written: " + text);
  }
  if (raised == 0) faults.emplace_back("no signal is raised");
  return faults;
}

std::vector<std::string> faults_of_wait(const std::string& ptx, std::string_view kernel) {
  const std::vector<Instruction> body = body_of(ptx, kernel);
  const Names names(body);
  std::set<std::string> signals;
  for (const Instruction& instruction : body) {
    if (is(instruction, "ld.acquire.sys")) signals.insert(names.address(instruction));
  }
  std::vector<std::string> faults;
  if (signals.empty()) faults.emplace_back("no signal is looked at with acquire semantics at system scope");
  for (const Instruction& instruction : body) {
    const bool writes = writes_global(instruction) || is(instruction, "atom.") || is(instruction, "red.");
    if (writes && signals.contains(names.address(instruction)))
      faults.push_back("the waiter writes its signal: " + instruction.text());
  }
  return faults;
}

}  // namespace tileway::testing
