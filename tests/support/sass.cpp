#include "support/sass.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

#include "tileway/error.hpp"

namespace tileway::testing {
namespace {

std::string nvdisasm() {
  const char* file = std::getenv("TILEWAY_NVDISASM");
  return file ? file : "nvdisasm";
}

// What a command prints; its status.
std::pair<std::string, int> output_of(const std::string& command) {
  std::FILE* pipe = popen(command.c_str(), "r");
  std::string text;
  char chunk[4096];
  while (pipe != nullptr) {
    const std::size_t bytes = std::fread(chunk, 1, sizeof(chunk), pipe);
    if (bytes == 0) break;
    text.append(chunk, bytes);
  }
  return {std::move(text), pipe == nullptr ? -1 : pclose(pipe)};
}

std::string disassembled(const std::string& cubin) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("tileway-sass-{}.cubin", getpid());
  std::ofstream(path, std::ios::binary) << cubin;
  auto [text, status] = output_of(fmt::format("'{}' -c '{}'", nvdisasm(), path.string()));
  std::filesystem::remove(path);
  TW_REQUIRE(status == 0, ErrorKind::system, .where = nvdisasm(), .what = "it failed", .got = fmt::to_string(status));
  return text;
}

struct Instruction {
  std::string function;
  std::string text;

  bool says(std::string_view word) const { return text.find(word) != std::string::npos; }
};

// What lies between two words of a line; empty where they are not there.
std::string between(const std::string& line, std::string_view before, std::string_view after) {
  const std::size_t first = line.find(before);
  if (first == std::string::npos) return {};
  const std::size_t last = line.find(after, first + before.size());
  if (last == std::string::npos) return {};
  return line.substr(first + before.size(), last - first - before.size());
}

}  // namespace

std::string why_no_sass() {
  if (output_of(fmt::format("'{}' --version 2>/dev/null", nvdisasm())).second == 0) return {};
  return fmt::format("there is no nvdisasm ({}): run scripts/install test, then . scripts/toolkit", nvdisasm());
}

std::vector<Loop> loops_of(const std::string& cubin) {
  std::vector<Instruction> instructions;
  std::map<std::string, std::size_t> labels;
  std::string function;
  std::istringstream lines(disassembled(cubin));
  for (std::string line; std::getline(lines, line);) {
    const std::string named = between(line, ".type", ",@function");
    if (!named.empty())
      function = named;
    else if (line.starts_with(".L_x_"))
      labels[line.substr(0, line.find(':'))] = instructions.size();
    else if (!between(line, "/*", "*/").empty())
      instructions.push_back({function, line});
  }
  // A branch back closes a loop.
  std::vector<std::pair<std::size_t, std::size_t>> loops;
  for (std::size_t i = 0; i < instructions.size(); ++i) {
    if (!instructions[i].says(" BRA")) continue;
    const auto target = labels.find(between(instructions[i].text, "`(", ")"));
    if (target != labels.end() && target->second <= i) loops.emplace_back(target->second, i);
  }
  std::sort(loops.begin(), loops.end());
  loops.erase(std::unique(loops.begin(), loops.end()), loops.end());
  std::vector<Loop> found;
  for (const auto& [first, last] : loops) {
    Loop loop{.function = instructions[first].function};
    int together = 0;
    for (std::size_t i = first; i <= last; ++i) {
      const bool further_in =
          std::any_of(loops.begin(), loops.end(), [&, begin = first, end = last](const auto& other) {
            return other != std::make_pair(begin, end) && other.first >= begin && other.second <= end &&
                   other.first <= i && i <= other.second;
          });
      const Instruction& one = instructions[i];
      const bool multiplies = one.says("MMA") || one.says("FFMA");
      if (further_in) {
        loop.multiplies_within += multiplies ? 1 : 0;
        continue;
      }
      const bool spilt = one.says("SpillRefill");
      together = one.says(" BRA") ? 0 : together + (one.says(" LD") && one.says(".128 ") ? 1 : 0);
      loop.wide_loads_together = std::max(loop.wide_loads_together, together);
      ++loop.instructions;
      loop.multiplies += multiplies ? 1 : 0;
      loop.spill_stores += spilt && one.says("STL") ? 1 : 0;
      loop.spill_loads += spilt && one.says("LDL") ? 1 : 0;
    }
    found.push_back(loop);
  }
  return found;
}

}  // namespace tileway::testing
