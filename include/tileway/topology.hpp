// The machine that a plan is made for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tileway {

// What starts the tasks of a lane.
enum class Engine : std::uint8_t { compute, copy, collective, library };
inline constexpr int kEngineCount = 4;
std::string_view name_of(Engine engine);

// A compute lane is a CPU thread or a resident thread block; a copy lane moves bytes beside them; a collective lane is
// a call stream of a collective library, which wants room of its own on a GPU: eight multiprocessors, so that of 132
// there are 124 lanes left beside one collective lane and 116 beside two. A library lane is a call stream of a library
// of matrix products, which runs on the multiprocessors that compute lanes leave it: ranks=2,lanes=16,copy=2,library=1.
// The rates only steer choices (order, tiles); nothing that is computed depends on them.
struct Topology {
  static constexpr int kGpuLanes = 16;  // from here on a compute lane is a thread block

  int ranks = 1;
  int lanes = 1;       // compute lanes of each rank
  int copy = 1;        // copy lanes of each rank; 0: compute lanes move the bytes
  int collective = 0;  // collective lanes of each rank
  int library = 0;     // library lanes of each rank
  int movers = 0;      // of the compute lanes, those set aside for what collectives move: they do that and nothing else
  double lane_gflops = 20;
  double lane_gb_s = 5;
  double link_gb_s = 5;  // one direction, each rank
  double link_us = 5;    // a signal to a peer

  // The CPU ranks of this machine: lanes = max(1, cores / ranks).
  static Topology host(int ranks);
  // GPUs with 132 SMs, NVLink, two copy lanes each.
  static Topology gpus(int ranks);
  // "ranks=8,lanes=132,copy=2[,collective=..,library=..,movers=..,lane_gflops=..,lane_gb_s=..,link_gb_s=..,link_us=..]";
  // what is not named is as gpus() has it from 16 lanes on, else as host(). Throws Error (invalid), naming the key.
  static Topology parse(std::string_view text);
  std::string to_text() const;

  bool has_blocks() const { return lanes >= kGpuLanes; }
  // How many lanes of an engine each rank has.
  int lanes_of(Engine engine) const;
};

}  // namespace tileway
