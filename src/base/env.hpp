// The one place that reads environment variables.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace tileway::env {

// How long any wait may last: TILEWAY_DEADLINE_MS, a positive number of milliseconds. Default 30000.
std::chrono::milliseconds deadline();

// What a launcher such as torchrun says of this process. Empty unless RANK and WORLD_SIZE are both set.
struct Launch {
  int rank = 0;
  int world_size = 0;
  int local_world_size = 0;  // LOCAL_WORLD_SIZE, or world_size
  std::string rendezvous;    // MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT joined
};
std::optional<Launch> launch();

// The file of NVRTC where the loader does not find it by itself: TILEWAY_NVRTC, or empty.
std::string nvrtc();
// That of NCCL: TILEWAY_NCCL, or empty.
std::string nccl();
// That of cuBLASLt: TILEWAY_CUBLASLT, or empty.
std::string cublaslt();
// Where compiled kernels are kept: TILEWAY_CACHE, or tileway in XDG_CACHE_HOME or in .cache of HOME.
std::string cache_directory();

// The folder for private run-time files: XDG_RUNTIME_DIR, TMPDIR or /tmp.
std::string runtime_directory();

}  // namespace tileway::env
