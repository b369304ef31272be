#include "base/env.hpp"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "tileway/error.hpp"

namespace tileway::env {
namespace {

std::string text_of(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

int number_of(const char* name, int fallback) {
  const std::string text = text_of(name);
  if (text.empty()) return fallback;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TW_REQUIRE(error == std::errc() && end == text.data() + text.size() && value >= 0, ErrorKind::invalid, .where = name,
             .what = "not a number", .expected = "a non-negative whole number", .got = text);
  return value;
}

}  // namespace

std::chrono::milliseconds deadline() {
  const int value = number_of("TILEWAY_DEADLINE_MS", 30000);
  TW_REQUIRE(value > 0, ErrorKind::invalid, .where = "TILEWAY_DEADLINE_MS", .what = "not a deadline",
             .expected = "a positive number of milliseconds", .got = std::to_string(value));
  return std::chrono::milliseconds(value);
}

std::optional<Launch> launch() {
  if (text_of("RANK").empty() || text_of("WORLD_SIZE").empty()) return std::nullopt;
  Launch launch;
  launch.rank = number_of("RANK", 0);
  launch.world_size = number_of("WORLD_SIZE", 1);
  launch.local_world_size = number_of("LOCAL_WORLD_SIZE", launch.world_size);
  TW_REQUIRE(launch.rank < launch.world_size, ErrorKind::invalid, .where = "RANK", .what = "a rank outside the world",
             .expected = "less than WORLD_SIZE " + std::to_string(launch.world_size),
             .got = std::to_string(launch.rank));
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}) {
    launch.rendezvous += text_of(name) + "|";
  }
  return launch;
}

std::string nvrtc() { return text_of("TILEWAY_NVRTC"); }

std::string nccl() { return text_of("TILEWAY_NCCL"); }

std::string cublaslt() { return text_of("TILEWAY_CUBLASLT"); }

std::string cache_directory() {
  if (const std::string value = text_of("TILEWAY_CACHE"); !value.empty()) return value;
  if (const std::string value = text_of("XDG_CACHE_HOME"); !value.empty()) return value + "/tileway";
  const std::string home = text_of("HOME");
  return (home.empty() ? runtime_directory() : home + "/.cache") + "/tileway";
}

std::string runtime_directory() {
  for (const char* name : {"XDG_RUNTIME_DIR", "TMPDIR"}) {
    if (const std::string value = text_of(name); !value.empty()) return value;
  }
  return "/tmp";
}

}  // namespace tileway::env
