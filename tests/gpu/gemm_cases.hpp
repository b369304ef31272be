// Ways to run products with collectives on GPUs: types, engines, alignments.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "tileway/ops.hpp"
#include "tileway/schedule.hpp"

namespace tileway::testing::gemms {

// What multiplies and what moves.
struct Engines {
  const char* name;
  const char* schedule;
  int lanes;         // of a GPU, shared by its ranks
  const char* rest;  // of the topology
  int last = 0;      // tiles for each destination that their makers bring there
};
inline constexpr Engines kStores{"stores", "overlapped", 132, "copy=0"};
inline constexpr Engines kMovers{"stores by movers", "overlapped", 132, "copy=0,movers=16"};
inline constexpr Engines kCopies{"copy engine", "overlapped", 132, "copy=2"};
inline constexpr Engines kFused{"fused stores", "fused", 132, "copy=0"};
inline constexpr Engines kCopiesAndFused{"copy engine, the last tile by fused stores", "overlapped", 132, "copy=2", 1};
inline constexpr Engines kLibrary{"cuBLASLt and copy engine", "library", 16, "copy=2,library=1"};
inline constexpr Engines kNccl{"NCCL", "collective", 124, "copy=0,collective=1"};
inline constexpr Engines kLibraryAndStores{"cuBLASLt and stores", "library", 48, "copy=0,library=1"};

inline Schedule schedule_of(const Engines& engines, Program& program) {
  Schedule schedule = Schedule::named(program, engines.schedule);
  for (std::size_t i = 0; i < program.ops().size() && engines.last > 0; ++i) {
    const Op& op = program.ops()[i];
    if (op.kind != OpKind::all_reduce && op.kind != OpKind::reduce_scatter && op.kind != OpKind::all_to_all) continue;
    schedule.fuse(Tensor(&program, op.operands[0]), Tensor(&program, static_cast<int>(i)), engines.last);
  }
  return schedule;
}

inline Topology topology_of(const Engines& engines, int ranks, int sharing) {
  return Topology::parse(fmt::format("ranks={},lanes={},{}", ranks, engines.lanes / sharing, engines.rest));
}

// Of operands.
struct Type {
  const char* name;
  DType dtype;
  Precision precision = Precision::exact;
};
inline constexpr Type kBf16{"bf16", DType::bf16};
inline constexpr std::array<Type, 5> kTypes{
    {kBf16, {"f16", DType::f16}, {"f32", DType::f32}, {"tf32", DType::f32, Precision::tf32}, {"e4m3", DType::e4m3}}};

struct Case {
  const Operator* op;
  std::vector<std::int64_t> size;
  int ranks;
  Type type;
  Engines engines;
  bool odd = false;  // the caller's memory, one element behind an aligned address; else the executor's
};

// Where inputs begin one element behind an aligned address; what matters of it.
inline std::map<BufferId, std::uint64_t> odd_bases(const Plan& plan) {
  std::map<BufferId, std::uint64_t> odd;
  for (const Plan::Binding& input : plan.inputs) odd[input.buffer] = size_of(plan.buffers[input.buffer].dtype);
  return odd;
}

inline constexpr std::array<const char*, 4> kOperators{"gemm_all_reduce", "gemm_reduce_scatter", "all_gather_gemm",
                                                       "gemm_all_to_all"};

}  // namespace tileway::testing::gemms
