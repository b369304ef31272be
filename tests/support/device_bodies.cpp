#include "support/device_bodies.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "tileway/function.hpp"

// What NVRTC brings.
// NOLINTBEGIN
#define __CUDACC__ 1
#define __device__
#define __global__
#define __host__
#define __forceinline__ inline
namespace {
struct Dim3 {
  unsigned x = 0;
};
thread_local Dim3 threadIdx;
using std::max;
using std::min;
unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(std::uint64_t{a} * b >> 32); }
float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
unsigned atomicCAS_system(unsigned* word, unsigned expected, unsigned value) {
  const unsigned before = *word;
  if (before == expected) *word = value;
  return before;
}
void __threadfence_system() {}
template <typename To>
To cut(double value) {
  if (std::isnan(value)) return 0;
  constexpr double kEnd = -static_cast<double>(std::numeric_limits<To>::min());
  return value >= kEnd   ? std::numeric_limits<To>::max()
         : value < -kEnd ? std::numeric_limits<To>::min()
                         : static_cast<To>(value);
}
int __double2int_rz(double value) { return cut<int>(value); }
long long __double2ll_rz(double value) { return cut<long long>(value); }
float __double2float_rz(double value) {
  const auto nearest = static_cast<float>(value);
  return std::abs(static_cast<double>(nearest)) > std::abs(value) ? std::nextafter(nearest, 0.0F) : nearest;
}
// Only where workers meet, and those bodies are not here.
float __shfl_xor_sync(unsigned, float value, unsigned) { return value; }
}  // namespace
// The host has types of the same names.
#define tileway tileway_of_device
#include "tileway/dynamic.cuh"
#include "tileway/lookup.cuh"
#include "tileway/move.cuh"
#include "tileway/pointwise.cuh"
#include "tileway/reduce.cuh"
#undef tileway
// NOLINTEND

namespace tileway::testing {
namespace {

namespace device = tileway_of_device;
using device::ReduceOp;

using Bodies = std::map<std::string, void (*)(const device::Arguments&)>;

template <typename T, std::size_t... numbers>
void add_functions(Bodies& bodies, const std::string& type, std::index_sequence<numbers...>) {
  const auto name = [&](std::size_t number) {
    return "pointwise<" + type + ", Function::" + std::string(name_of(static_cast<tileway::Function>(number))) + ">";
  };
  ((bodies[name(numbers)] = device::pointwise<T, static_cast<device::Function>(numbers)>), ...);
}

// Of elements that are computed with.
template <typename T>
void add_computations(Bodies& bodies, const std::string& type) {
  add_functions<T>(bodies, type, std::make_index_sequence<kFunctionCount>());
  bodies["reduce_ranks<" + type + ", ReduceOp::sum>"] = device::reduce_ranks<T, ReduceOp::sum>;
  bodies["reduce_ranks<" + type + ", ReduceOp::max>"] = device::reduce_ranks<T, ReduceOp::max>;
  bodies["reduce_ranks<" + type + ", ReduceOp::min>"] = device::reduce_ranks<T, ReduceOp::min>;
  bodies["reduce_dim<" + type + ">"] = device::reduce_dim<T>;
  bodies["cast<" + type + ", float>"] = device::cast<T, float>;
  bodies["cast<" + type + ", bf16>"] = device::cast<T, device::bf16>;
  bodies["embedding_bag<" + type + ", i32>"] = device::embedding_bag<T, std::int32_t>;
  bodies["embedding_bag<" + type + ", i64>"] = device::embedding_bag<T, device::i64>;
}

// Of elements that are only moved.
template <typename Bits>
void add_moves(Bodies& bodies, const std::string& bits) {
  bodies["copy<" + bits + ">"] = device::copy<Bits>;
  bodies["transpose<" + bits + ">"] = device::transpose<Bits>;
  bodies["gather_rows<" + bits + ", i32>"] = device::gather_rows<Bits, std::int32_t>;
  bodies["gather_rows<" + bits + ", i64>"] = device::gather_rows<Bits, device::i64>;
  bodies["copy_rows<" + bits + ", i32>"] = device::copy_rows<Bits, std::int32_t>;
  bodies["copy_rows<" + bits + ", i64>"] = device::copy_rows<Bits, device::i64>;
  bodies["zero_rows<" + bits + ", i32>"] = device::zero_rows<Bits, std::int32_t>;
  bodies["zero_rows<" + bits + ", i64>"] = device::zero_rows<Bits, device::i64>;
}

Bodies all_bodies() {
  Bodies bodies;
  add_computations<float>(bodies, "float");
  add_computations<device::bf16>(bodies, "bf16");
  add_computations<std::int32_t>(bodies, "i32");
  add_computations<device::i64>(bodies, "i64");
  add_moves<device::u8>(bodies, "u8");
  add_moves<device::u16>(bodies, "u16");
  add_moves<device::u32>(bodies, "u32");
  add_moves<device::u64>(bodies, "u64");
  return bodies;
}

}  // namespace

bool run_device_body(const std::string& variant, const DeviceTask& task) {
  static const Bodies bodies = all_bodies();
  const auto found = bodies.find(variant);
  if (found == bodies.end()) return false;
  const auto* views = static_cast<const device::View*>(task.views);
  const device::Arguments arguments{*static_cast<const device::BodyRow*>(task.body),
                                    views,
                                    views + task.reads,
                                    task.reads,
                                    task.writes,
                                    nullptr,
                                    task.task,
                                    static_cast<device::Failure*>(task.failure),
                                    task.abort};
  for (device::u32 worker = 0; worker < device::kWorkers; ++worker) {
    threadIdx.x = device::kServiceThreads + worker;
    found->second(arguments);
  }
  return true;
}

}  // namespace tileway::testing
