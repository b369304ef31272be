#include "tileway/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <thread>

#include "plan/names.hpp"
#include "tileway/error.hpp"

namespace tileway {
namespace {

constexpr int kMaxRanks = 4096;
constexpr int kMaxLanes = 1024;

int whole(const std::string& key, double value, int low, int high) {
  TW_REQUIRE(value >= low && value <= high && value == static_cast<int>(value), ErrorKind::invalid, .where = "topology",
             .what = "impossible value of '" + key + "'", .expected = fmt::format("{} to {}", low, high),
             .got = fmt::format("{}", value));
  return static_cast<int>(value);
}

}  // namespace

std::string_view name_of(Engine engine) { return name_in(kEngineNames, engine); }

int Topology::lanes_of(Engine engine) const {
  switch (engine) {
    case Engine::compute:
      return lanes;
    case Engine::copy:
      return copy;
    case Engine::collective:
      return collective;
    case Engine::library:
      return library;
  }
  TW_ASSERT(!"an engine");
  return 0;
}

Topology Topology::host(int ranks) {
  Topology topology;
  topology.ranks = ranks;
  topology.lanes = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / std::max(1, ranks));
  return topology;
}

Topology Topology::gpus(int ranks) {
  return {
      .ranks = ranks, .lanes = 132, .copy = 2, .lane_gflops = 6150, .lane_gb_s = 26, .link_gb_s = 185, .link_us = 1.2};
}

Topology Topology::parse(std::string_view text) {
  std::map<std::string, double> values;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    const std::string key(item.substr(0, equals));
    const std::string_view digits = equals == item.npos ? std::string_view() : item.substr(equals + 1);
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    TW_REQUIRE(error == std::errc() && end == digits.data() + digits.size() && value >= 0, ErrorKind::invalid,
               .where = "topology", .what = "cannot read '" + std::string(item) + "'", .expected = "key=number");
    TW_REQUIRE(values.emplace(key, value).second, ErrorKind::invalid, .where = "topology",
               .what = "'" + key + "' comes twice");
  }
  const auto take = [&](const std::string& key, double fallback) {
    const auto found = values.find(key);
    if (found == values.end()) return fallback;
    const double value = found->second;
    values.erase(found);
    return value;
  };
  TW_REQUIRE(values.contains("ranks"), ErrorKind::invalid, .where = "topology",
             .what = "the number of ranks is missing", .expected = "ranks=8,lanes=132,copy=2");
  const int ranks = whole("ranks", take("ranks", 1), 1, kMaxRanks);
  const bool gpu = values.contains("lanes") && values["lanes"] >= kGpuLanes;
  Topology topology = gpu ? gpus(ranks) : host(ranks);
  topology.lanes = whole("lanes", take("lanes", topology.lanes), 1, kMaxLanes);
  topology.copy = whole("copy", take("copy", topology.copy), 0, kMaxLanes);
  topology.collective = whole("collective", take("collective", topology.collective), 0, kMaxLanes);
  topology.library = whole("library", take("library", topology.library), 0, kMaxLanes);
  topology.movers = whole("movers", take("movers", topology.movers), 0, kMaxLanes);
  topology.lane_gflops = take("lane_gflops", topology.lane_gflops);
  topology.lane_gb_s = take("lane_gb_s", topology.lane_gb_s);
  topology.link_gb_s = take("link_gb_s", topology.link_gb_s);
  topology.link_us = take("link_us", topology.link_us);
  TW_REQUIRE(topology.lane_gflops > 0 && topology.lane_gb_s > 0 && topology.link_gb_s > 0, ErrorKind::invalid,
             .where = "topology", .what = "a rate of zero", .expected = "positive rates");
  TW_REQUIRE(topology.movers < topology.lanes, ErrorKind::invalid, .where = "topology",
             .what = "movers are set aside from the lanes, and none is left to compute",
             .expected = fmt::format("less than {}", topology.lanes), .got = std::to_string(topology.movers));
  TW_REQUIRE(
      values.empty(), ErrorKind::invalid, .where = "topology", .what = "unknown key '" + values.begin()->first + "'",
      .expected = "ranks, lanes, copy, collective, library, movers, lane_gflops, lane_gb_s, link_gb_s or link_us");
  return topology;
}

std::string Topology::to_text() const {
  return fmt::format(
      "ranks={},lanes={},copy={},collective={},library={},movers={},lane_gflops={},lane_gb_s={},link_gb_s={},link_us={"
      "}",
      ranks, lanes, copy, collective, library, movers, lane_gflops, lane_gb_s, link_gb_s, link_us);
}

}  // namespace tileway
