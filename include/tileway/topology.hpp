// The machine that a plan is made for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tileway {

// What starts the tasks of a lane.
enum class Engine : std::uint8_t { compute, copy, collective };
std::string_view name_of(Engine engine);

// A compute lane is a CPU thread or a resident thread block; a copy lane moves bytes beside them; a collective lane is
// a call stream of a collective library, which wants room of its own on a GPU: eight multiprocessors, so that of 132
// there are 124 lanes left beside one collective lane and 116 beside two. The rates only steer choices (order, tiles);
// nothing that is computed depends on them.
struct Topology {
  int ranks = 1;
  int lanes = 1;       // compute lanes of each rank
  int copy = 1;        // copy lanes of each rank; 0: compute lanes move the bytes
  int collective = 0;  // collective lanes of each rank
  double lane_gflops = 20;
  double lane_gb_s = 5;
  double link_gb_s = 5;  // one direction, each rank
  double link_us = 5;    // a signal to a peer

  // The CPU ranks of this machine: lanes = max(1, cores / ranks).
  static Topology host(int ranks);
  // GPUs with 132 SMs, NVLink, two copy lanes each.
  static Topology gpus(int ranks);
  // "ranks=8,lanes=132,copy=2[,collective=..,lane_gflops=..,lane_gb_s=..,link_gb_s=..,link_us=..]"; what is not named
  // is as gpus() has it from 16 lanes on, else as host(). Throws Error (invalid), naming the key.
  static Topology parse(std::string_view text);
  std::string to_text() const;
};

}  // namespace tileway
