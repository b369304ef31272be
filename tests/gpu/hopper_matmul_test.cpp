// Tiles of device/tileway/matmul_hopper.cuh, every element against a kernel too simple to be wrong. Needs one Hopper
// GPU and says so where there is none. scripts/gpu.sh runs it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "runtime/cuda/compile.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/memory.hpp"
#include "runtime/cuda/tensor_map.hpp"
#include "tileway/error.hpp"
#include "tileway/group.hpp"

namespace tileway::cuda {
namespace {

constexpr unsigned kThreads = 384;
constexpr int kSharedBytes = 214016;  // the ring and staging; the kernels hold it against their own count

// The kernels under test: a block walks tiles as a lane would walk tasks.
constexpr const char* kTiles = R"(
#include "tileway/matmul_hopper.cuh"
using namespace tileway;
static_assert(HopperShape<bf16>::kRingBytes + kHopperStagingBytes == 214016, "what the host asks for");
static_assert(HopperShape<e4m3>::kRingBytes + kHopperStagingBytes == 214016, "what the host asks for");
struct Job {
  u64 maps;  // of A, of B
  u64 c;
  i64 c_stride;
  i64 c_batch;
  u64 patience_ns;
  u64 abort;
  u64 failed;  // u32: how many sides of blocks gave up
  u32 m, n, k, batches;
  u32 a_batched, b_batched;
  u32 idle;  // a side that does nothing: 1 the producer, 2 the workers
  u32 unused;
  u64 row_scales;  // of e4m3: for each row, and one for all columns
  u64 column_scale;
};
struct Place {
  u32 batch, m0, n0;
};
template <typename T>
__device__ inline u32 tile_columns(const Job& job) {
  return (job.n + HopperShape<T>::kColumns - 1) / HopperShape<T>::kColumns;
}
// Sixteen rows of tiles at a time, so that blocks that run together share what they load.
template <typename T>
__device__ inline Place place_of(const Job& job, u32 tile) {
  const u32 rows = (job.m + kHopperTileRows - 1) / kHopperTileRows;
  const u32 columns = tile_columns<T>(job);
  const u32 batch = tile / (rows * columns);
  tile %= rows * columns;
  const u32 first = tile / (16 * columns) * 16;
  const u32 together = min(16u, rows - first);
  tile -= first * columns;
  return {batch, (first + tile % together) * kHopperTileRows, tile / together * HopperShape<T>::kColumns};
}
__device__ inline View view_of(u64 data, i64 rows, i64 columns, i64 stride) {
  View view{};
  view.data = data;
  view.dims = 2;
  view.extent[0] = rows;
  view.extent[1] = columns;
  view.stride[0] = stride;
  view.stride[1] = 1;
  return view;
}
template <typename T, typename C>
__device__ __forceinline__ void walk(const Job& job) {
  extern __shared__ __align__(1024) u8 shared[];
  const HopperRing<T> ring(shared);
  if (threadIdx.x == 0) hopper_init_ring(ring);
  __syncthreads();
  const Patience patience{now_ns() + job.patience_ns, reinterpret_cast<const u32*>(job.abort)};
  u32* const failed = reinterpret_cast<u32*>(job.failed);
  const u32 tiles = (job.m + kHopperTileRows - 1) / kHopperTileRows * tile_columns<T>(job) * job.batches;
  RingPosition position{0, 0};
  if (threadIdx.x < kServiceThreads) {
    hopper_service_registers();
    if (threadIdx.x != 0 || job.idle == 1) return;
    const u8* const a_map = reinterpret_cast<const u8*>(job.maps);
    const u8* const b_map = a_map + 128;
    tensor_map_acquire(a_map);
    tensor_map_acquire(b_map);
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const Place at = place_of<T>(job, tile);
      if (hopper_produce(ring, position,
                         {a_map, b_map, at.m0, at.n0, job.n, job.k, at.batch * job.a_batched, at.batch * job.b_batched},
                         patience)) continue;
      atomicAdd(failed, 1u);
      break;
    }
    hopper_drain(ring, position, patience);
  } else {
    hopper_worker_registers();
    if (job.idle == 2) return;
    const View c = view_of(job.c, job.m, job.n, job.c_stride);
    u8* const staging = shared + HopperShape<T>::kRingBytes;
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      const Place at = place_of<T>(job, tile);
      const HopperOutput<C> output = hopper_output<T, C>(c, at.batch * job.c_batch, at.m0, at.n0);
      bool done;
      if constexpr (same_type<T, e4m3>) {
        const View reads[4] = {{}, {}, view_of(job.row_scales, job.m, 1, 1), view_of(job.column_scale, 1, 1, 1)};
        done = hopper_consume(ring, position, job.k, output, staging, patience,
                              Scales(reads, at.m0, at.n0, output.rows, output.columns));
      } else {
        done = hopper_consume(ring, position, job.k, output, staging, patience, Epilogue<T, C>{});
      }
      if (!any_worker(!done)) continue;
      if (worker() == 0) atomicAdd(failed, 1u);
      break;
    }
  }
}
extern "C" __global__ void __launch_bounds__(kBlockThreads, 1) matmul_bf16(const __grid_constant__ Job job) {
  walk<bf16, bf16>(job);
}
extern "C" __global__ void __launch_bounds__(kBlockThreads, 1) matmul_f16(const __grid_constant__ Job job) {
  walk<f16, f16>(job);
}
extern "C" __global__ void __launch_bounds__(kBlockThreads, 1) matmul_e4m3_bf16(const __grid_constant__ Job job) {
  walk<e4m3, bf16>(job);
}
extern "C" __global__ void __launch_bounds__(kBlockThreads, 1) matmul_e4m3_f32(const __grid_constant__ Job job) {
  walk<e4m3, float>(job);
}
)";

// Filling and comparing, one thread an element. Products of small integers are compared exactly; those of normals are
// held to the one rounding of the result, and 2^-18 of the magnitudes summed for sums in fp32, 2^-8 for those of e4m3,
// of which tensor cores may keep 13 bits behind the point of the largest product. Scales are taken from a row's number,
// so that those of a tile are not another's.
constexpr const char* kReference = R"(
#include "tileway/types.cuh"
using namespace tileway;
struct Box {
  u64 data;
  u32 batches, rows, columns;
  u32 buffer_rows, stride, first_row, first_column;
  u32 unused;
};
struct Found {
  u64 inside;   // elements that are wrong
  u64 outside;  // elements around the box that were touched
  u32 claimed;  // the first one seen:
  u32 batch, row, column;
  double got, want, bound;
};
// Not a number, in every type.
template <typename T>
__device__ inline T poison() {
  T value;
  for (u32 byte = 0; byte < sizeof(T); ++byte) reinterpret_cast<u8*>(&value)[byte] = byte % 2 == sizeof(T) % 2 ? 0xa5 : 0x7f;
  return value;
}
template <typename T>
__device__ inline bool poisoned(const T& value) {
  const T other = poison<T>();
  bool same = true;
  for (u32 byte = 0; byte < sizeof(T); ++byte)
    same = same && reinterpret_cast<const u8*>(&value)[byte] == reinterpret_cast<const u8*>(&other)[byte];
  return same;
}
__device__ inline float scale_of_row(u32 row) { return static_cast<float>(1 << row % 7) * 0.25f; }
constexpr float kColumnScale = 0.5f;
struct Spot {
  bool inside;
  u32 batch, row, column;
};
__device__ inline Spot spot_of(const Box& box, u64 i) {
  const u32 column = i % box.stride - box.first_column;
  const u32 row = i / box.stride % box.buffer_rows - box.first_row;
  return {row < box.rows && column < box.columns, static_cast<u32>(i / box.stride / box.buffer_rows), row, column};
}
__device__ inline u64 offset(const Box& box, u32 batch, u32 row, u32 column) {
  return (static_cast<u64>(batch) * box.buffer_rows + box.first_row + row) * box.stride + box.first_column + column;
}
__device__ inline u64 elements(const Box& box) { return static_cast<u64>(box.batches) * box.buffer_rows * box.stride; }
__device__ inline u64 first_element() { return blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; }
__device__ inline u64 step() { return gridDim.x * static_cast<u64>(blockDim.x); }
__device__ inline u32 scramble(u32 x) {
  x = (x ^ x >> 16) * 0x85ebca6bu;
  x = (x ^ x >> 13) * 0xc2b2ae35u;
  return x ^ x >> 16;
}
// Kind 0: integers from -2 to 2; 1: normals. Around the box, and everywhere for other kinds: poison.
template <typename T>
__device__ inline void fill(const Box& box, u32 kind, u32 seed) {
  T* const data = reinterpret_cast<T*>(box.data);
  for (u64 i = first_element(); i < elements(box); i += step()) {
    const u32 first = scramble(static_cast<u32>(i) * 2u + seed);
    const u32 second = scramble(static_cast<u32>(i) * 2u + 1u + seed);
    const float radius = sqrtf(-2 * logf((first + 1.0f) * 0x1p-32f));
    const float whole = static_cast<float>(static_cast<int>(first % 5) - 2);
    const float value = kind == 0 ? whole : radius * cospif(second * 0x1p-31f);
    data[i] = kind < 2 && spot_of(box, i).inside ? narrow<T>(value) : poison<T>();
  }
}
template <typename T, typename C>
__device__ inline void compare(const Box& a, const Box& b, const Box& c, bool exact, float rounding, Found* found) {
  constexpr bool kScaled = same_type<T, e4m3>;  // and b is given transposed
  constexpr float kSums = kScaled ? 0x1p-8f : 0x1p-18f;
  const T* const as = reinterpret_cast<const T*>(a.data);
  const T* const bs = reinterpret_cast<const T*>(b.data);
  const C* const cs = reinterpret_cast<const C*>(c.data);
  for (u64 i = first_element(); i < elements(c); i += step()) {
    const Spot spot = spot_of(c, i);
    if (!spot.inside) {
      if (!poisoned(cs[i])) atomicAdd(&found->outside, 1ull);
      continue;
    }
    const T* const row = as + offset(a, a.batches > 1 ? spot.batch : 0, spot.row, 0);
    const T* column = bs + offset(b, b.batches > 1 ? spot.batch : 0, kScaled ? spot.column : 0, kScaled ? 0 : spot.column);
    double sum = 0;
    float magnitude = 0;
    for (u32 k = 0; k < a.columns; ++k, column += kScaled ? 1 : b.stride) {
      const float product = widen(row[k]) * widen(*column);  // exact: twice eleven bits are few enough
      sum += product;
      magnitude += fabsf(product);
    }
    if (kScaled) {
      sum *= scale_of_row(spot.row) * kColumnScale;
      magnitude *= scale_of_row(spot.row) * kColumnScale;
    }
    const double got = widen(cs[i]);
    const double want = exact ? widen(narrow<C>(static_cast<float>(sum))) : sum;
    const double bound = exact ? 0 : fabs(sum) * rounding + magnitude * kSums;
    if (fabs(got - want) <= bound) continue;
    atomicAdd(&found->inside, 1ull);
    if (atomicCAS(&found->claimed, 0u, 1u) != 0) continue;
    found->batch = spot.batch;
    found->row = spot.row;
    found->column = spot.column;
    found->got = got;
    found->want = want;
    found->bound = bound;
  }
}
extern "C" __global__ void fill_bf16(Box box, u32 kind, u32 seed) { fill<bf16>(box, kind, seed); }
extern "C" __global__ void fill_f16(Box box, u32 kind, u32 seed) { fill<f16>(box, kind, seed); }
extern "C" __global__ void fill_e4m3(Box box, u32 kind, u32 seed) { fill<e4m3>(box, kind, seed); }
extern "C" __global__ void fill_f32(Box box, u32 kind, u32 seed) { fill<float>(box, kind, seed); }
extern "C" __global__ void fill_scales(float* rows, u32 count, float* column) {
  for (u64 i = first_element(); i < count; i += step()) rows[i] = scale_of_row(i);
  *column = kColumnScale;
}
extern "C" __global__ void compare_bf16(Box a, Box b, Box c, u32 exact, Found* found) {
  compare<bf16, bf16>(a, b, c, exact != 0, 0x1p-8f, found);
}
extern "C" __global__ void compare_f16(Box a, Box b, Box c, u32 exact, Found* found) {
  compare<f16, f16>(a, b, c, exact != 0, 0x1p-11f, found);
}
extern "C" __global__ void compare_e4m3_bf16(Box a, Box b, Box c, u32 exact, Found* found) {
  compare<e4m3, bf16>(a, b, c, exact != 0, 0x1p-8f, found);
}
extern "C" __global__ void compare_e4m3_f32(Box a, Box b, Box c, u32 exact, Found* found) {
  compare<e4m3, float>(a, b, c, exact != 0, 0x1p-24f, found);
}
)";

// As in the kernels.
struct Job {
  Address maps = 0, c = 0;
  std::int64_t c_stride = 0, c_batch = 0;
  std::uint64_t patience_ns = 0;
  Address abort = 0, failed = 0;
  unsigned m = 0, n = 0, k = 0, batches = 1, a_batched = 0, b_batched = 0, idle = 0, unused = 0;
  Address row_scales = 0, column_scale = 0;
};
struct Box {
  Address data = 0;
  unsigned batches = 1, rows = 0, columns = 0, buffer_rows = 0, stride = 0, first_row = 0, first_column = 0, unused = 0;
};
struct Found {
  std::uint64_t inside, outside;
  unsigned claimed, batch, row, column;
  double got, want, bound;
};

// A kernel under test.
struct Type {
  const char* name;
  const char* operand;
  const char* result;
  unsigned operand_bytes = 2;
  unsigned result_bytes = 2;
};
constexpr Type kBf16{"bf16", "bf16", "bf16"};
constexpr Type kTypes[]{
    kBf16, {"f16", "f16", "f16"}, {"e4m3_bf16", "e4m3", "bf16", 1, 2}, {"e4m3_f32", "e4m3", "f32", 1, 4}};

struct Shape {
  unsigned m, n, k;
  unsigned batches = 1;
  bool a_batched = true, b_batched = true;
};

// Where boxes lie in their buffers: 0 fills them; 1 is within them, aligned; 2 the same with C as misaligned as can be.
enum class Around { nothing, aligned, misaligned };

class Bench {
 public:
  explicit Bench(Group& group) : device_(0), memory_(group, device_, kBytes), gpu_(gpus()[0]) {
    const auto load = [&](Module& module, const char* source, const char* name) {
      check(driver()->ModuleLoadData(&module, compile(source, name, "sm_90a").cubin.data()), "loading kernels");
    };
    load(tiles_, kTiles, "hopper_matmul_test");
    load(reference_, kReference, "hopper_matmul_reference");
    for (const Type& type : kTypes)
      check(driver()->FuncSetAttribute(function(tiles_, fmt::format("matmul_{}", type.name)), 8, kSharedBytes),
            "asking for shared memory");
    check(driver()->MemsetD8(memory_.on(0), 0, kControl), "clearing");
  }

  // Fills, multiplies, compares every element.
  void expect_right(const Shape& shape, const Type& type, bool exact, Around around, unsigned seed) {
    prepare(shape, type, around);
    fill(type, exact, seed);
    multiply(type);
    const std::string what =
        fmt::format("{}x{}x{} ({} batches), {}, {}, around {}", shape.m, shape.n, shape.k, shape.batches, type.name,
                    exact ? "integers" : "normals", static_cast<int>(around));
    expect_compared(what, type, exact);
  }

  void expect_compared(const std::string& what, const Type& type, bool exact) {
    check(driver()->MemsetD8(memory_.on(0) + kFound, 0, sizeof(Found)), "clearing");
    launch(reference_, "compare", type.name, a_, b_, c_, exact ? 1U : 0U, memory_.on(0) + kFound);
    check(driver()->CtxSynchronize(), what.c_str());
    TW_REQUIRE(read<unsigned>(kFailed) == 0, ErrorKind::lost, .where = what, .what = "a wait did not end");
    const auto found = read<Found>(kFound);
    TW_REQUIRE(
        found.inside + found.outside == 0, ErrorKind::lost, .where = what,
        .what = fmt::format("{} elements are wrong, {} around the box were touched", found.inside, found.outside),
        .got = fmt::format("{} at ({}, {}, {}), not {} within {}", found.got, found.batch, found.row, found.column,
                           found.want, found.bound));
  }

  void prepare(const Shape& shape, const Type& type, Around around) {
    // Rows of A and B begin at multiples of 16 bytes, C's where they like.
    const bool alone = around == Around::nothing;
    const bool fp8 = type.operand_bytes == 1;
    const auto box = [&](std::size_t at, unsigned rows, unsigned columns, unsigned batches, unsigned step) {
      Box made{memory_.on(0) + at, batches, rows, columns, rows, (columns + 15) / 16 * 16};
      if (alone) return made;
      return Box{made.data, batches, rows, columns, rows + 5, made.stride + 3 * step, 2, step};
    };
    a_ = box(kA, shape.m, shape.k, shape.a_batched ? shape.batches : 1, 16);
    b_ = box(kB, fp8 ? shape.n : shape.k, fp8 ? shape.k : shape.n, shape.b_batched ? shape.batches : 1, fp8 ? 16 : 8);
    c_ = box(kC, shape.m, shape.n, shape.batches, around == Around::misaligned ? 3 : 8);
    const std::vector<TensorMap> maps{map_of(a_, kLinesOfA, type), map_of(b_, fp8 ? kLinesOfKMajorB : kLinesOfB, type)};
    check(driver()->MemcpyHtoD(memory_.on(0) + kMaps, maps.data(), sizeof(TensorMap) * maps.size()), "copying maps");
    const std::int64_t first = std::int64_t{c_.first_row} * c_.stride + c_.first_column;
    job_ = {.maps = memory_.on(0) + kMaps,
            .c = c_.data + type.result_bytes * first,
            .c_stride = c_.stride,
            .c_batch = std::int64_t{c_.buffer_rows} * c_.stride,
            .patience_ns = 2'000'000'000,
            .abort = memory_.on(0) + kAbort,
            .failed = memory_.on(0) + kFailed,
            .m = shape.m,
            .n = shape.n,
            .k = shape.k,
            .batches = shape.batches,
            .a_batched = shape.a_batched,
            .b_batched = shape.b_batched,
            .row_scales = memory_.on(0) + kScales,
            .column_scale = memory_.on(0) + kColumnScale};
  }

  void fill(const Type& type, bool exact, unsigned seed) {
    launch(reference_, "fill", type.operand, a_, exact ? 0U : 1U, seed);
    launch(reference_, "fill", type.operand, b_, exact ? 0U : 1U, seed + 77);
    launch(reference_, "fill", type.result, c_, 2U, 0U);
    launch(reference_, "fill", "scales", job_.row_scales, job_.m, job_.column_scale);
  }

  void multiply(const Type& type) {
    void* list[] = {&job_};
    check(driver()->LaunchKernel(function(tiles_, fmt::format("matmul_{}", type.name)), blocks(), 1, 1, kThreads, 1, 1,
                                 kSharedBytes, nullptr, list, nullptr),
          "multiplying");
  }

  // The median of 20, in microseconds.
  double time(const Shape& shape, const Type& type) {
    prepare(shape, type, Around::nothing);
    fill(type, false, 3);
    Event from = nullptr, to = nullptr;
    check(driver()->EventCreate(&from, 0), "timing");
    check(driver()->EventCreate(&to, 0), "timing");
    std::vector<float> times;
    for (int run = -3; run < 20; ++run) {
      float ms = 0;
      check(driver()->EventRecord(from, nullptr), "timing");
      multiply(type);
      check(driver()->EventRecord(to, nullptr), "timing");
      check(driver()->EventSynchronize(to), "timing");
      check(driver()->EventElapsedTime(&ms, from, to), "timing");
      if (run >= 0) times.push_back(ms);
    }
    std::nth_element(times.begin(), times.begin() + 10, times.end());
    return 1e3 * times[10];
  }

  // How many sides of blocks gave up, and after how long, when one side does nothing or the flag is up.
  std::pair<unsigned, double> in_vain(unsigned idle, bool raised, std::uint64_t patience_ns) {
    prepare({1024, 1024, 4096}, kBf16, Around::nothing);
    job_.idle = idle;
    job_.patience_ns = patience_ns;
    check(driver()->MemsetD8(memory_.on(0) + kAbort, raised ? 1 : 0, 4), "giving up");
    const auto begin = std::chrono::steady_clock::now();
    multiply(kBf16);
    check(driver()->CtxSynchronize(), "waiting in vain");
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const auto failed = read<unsigned>(kFailed);
    check(driver()->MemsetD8(memory_.on(0), 0, kControl), "clearing");
    return {failed, seconds};
  }

  unsigned blocks() const { return static_cast<unsigned>(gpu_.multiprocessors); }

 private:
  static constexpr std::size_t kMaps = 0, kAbort = 1024, kFailed = 1088, kFound = 1152, kColumnScale = 1280,
                               kScales = 4096, kControl = 65536;
  static constexpr std::size_t kMost = std::size_t{80} << 20;
  static constexpr std::size_t kA = kControl, kB = kA + kMost, kC = kB + kMost, kBytes = kC + kMost;

  static TensorMap map_of(const Box& box, unsigned lines, const Type& type) {
    const std::uint64_t first = std::uint64_t{box.first_row} * box.stride + box.first_column;
    return tensor_map({.first = box.data + type.operand_bytes * first,
                       .rows = box.rows,
                       .columns = box.columns,
                       .row_stride = box.stride,
                       .batches = box.batches,
                       .batch_stride = std::uint64_t{box.buffer_rows} * box.stride,
                       .element_bytes = type.operand_bytes},
                      lines);
  }
  static Function function(Module module, const std::string& name) {
    Function found = nullptr;
    check(driver()->ModuleGetFunction(&found, module, name.c_str()), name.c_str());
    return found;
  }
  template <typename... Arguments>
  void launch(Module module, const char* name, const char* dtype, Arguments... arguments) {
    void* list[] = {&arguments...};
    check(driver()->LaunchKernel(function(module, fmt::format("{}_{}", name, dtype)), 8 * blocks(), 1, 1, 256, 1, 1, 0,
                                 nullptr, list, nullptr),
          name);
  }
  template <typename T>
  T read(std::size_t at) {
    T value{};
    check(driver()->MemcpyDtoH(&value, memory_.on(0) + at, sizeof(T)), "reading");
    return value;
  }

  Device device_;
  SymmetricMemory memory_;
  Gpu gpu_;
  Module tiles_ = nullptr;
  Module reference_ = nullptr;
  Box a_, b_, c_;
  Job job_;
};

// In a process of its own, which may use the GPU: others that fork come after it.
template <typename Body>
void on_hopper(const Body& body) {
  Group::spawn(1, [&](Group& group) {
    const std::vector<Gpu> all = gpus();
    if (all.empty() || all[0].major != 9) {
      fmt::print("skipped: {}\n", all.empty() ? why_not() : fmt::format("{} is not a Hopper GPU", all[0].name));
      return;
    }
    Bench bench(group);
    body(bench);
  });
}

// Needs NVRTC but no GPU.
TEST(HopperMatmul, ProcessesKernelsCompile) {
  Group::spawn(1, [](Group&) {
    if (!compiler_found()) {
      fmt::print("skipped: {}\n", compiler_text());
      return;
    }
    compile(kTiles, "hopper_matmul_test", "sm_90a");
    compile(kReference, "hopper_matmul_reference", "sm_90a");
  });
}

TEST(HopperMatmul, TensorLoadsTakeAlignedBoxesOnly) {
  const TensorBox good{.first = 4096, .rows = 3, .columns = 5, .row_stride = 8};
  EXPECT_TRUE(tma_can_take(good));
  const auto but = [&](auto change) {
    TensorBox box = good;
    change(box);
    return tma_can_take(box);
  };
  EXPECT_FALSE(but([](TensorBox& box) { box.first += 8; }));
  EXPECT_FALSE(but([](TensorBox& box) { box.row_stride = 12; }));
  EXPECT_FALSE(but([](TensorBox& box) { box.columns = 9; }));
  EXPECT_FALSE(but([](TensorBox& box) { box.rows = 0; }));
  EXPECT_FALSE(but([](TensorBox& box) { box.rows = std::uint64_t{1} << 32; }));
  EXPECT_FALSE(but([](TensorBox& box) { box.row_stride = std::uint64_t{1} << 40; }));
  EXPECT_FALSE(but([](TensorBox& box) { box.batches = 2, box.batch_stride = 28; }));
  EXPECT_TRUE(but([](TensorBox& box) { box.batches = 2, box.batch_stride = 24; }));
  EXPECT_FALSE(but([](TensorBox& box) { box.element_bytes = 1; }));
  EXPECT_TRUE(but([](TensorBox& box) { box.element_bytes = 1, box.row_stride = 16; }));
}

TEST(HopperMatmul, ProcessesEveryElementIsRight) {
  on_hopper([](Bench& bench) {
    std::vector<Shape> shapes;
    for (const unsigned m : {1, 16, 100, 128, 1000, 1024, 4096})
      for (const unsigned n : {8, 96, 256, 1000, 4096})
        for (const unsigned k : {8, 64, 104, 1000, 4096}) shapes.push_back({m, n, k});
    for (const Shape odd : {Shape{5, 3, 3}, Shape{129, 263, 65}, Shape{130, 1, 72}, Shape{64, 511, 127}})
      shapes.push_back(odd);
    for (const unsigned m : {100, 300})
      for (const auto& [a_batched, b_batched] : {std::pair(true, true), {true, false}, {false, true}})
        shapes.push_back({m, 520, 200, 3, a_batched, b_batched});
    unsigned cases = 0;
    for (const Shape& shape : shapes) {
      for (const Type& type : kTypes) {
        if (type.operand_bytes == 1 && shape.batches > 1) continue;  // scaled products have no batch
        for (const bool exact : {true, false}) {
          bench.expect_right(shape, type, exact, static_cast<Around>(cases % 3), cases * 1009);
          ++cases;
        }
      }
    }
    fmt::print("{} products, every element right\n", cases);
  });
}

TEST(HopperMatmul, ProcessesASideThatIsLeftAloneGivesUp) {
  on_hopper([](Bench& bench) {
    const unsigned tiles = 32;  // one a block
    const unsigned sides = std::min(tiles, bench.blocks());
    for (const unsigned idle : {1U, 2U}) {
      const auto [late, seconds] = bench.in_vain(idle, false, 100'000'000);
      TW_REQUIRE(late == sides && seconds > 0.09 && seconds < 2, ErrorKind::lost, .where = "a wait in vain",
                 .what = "it did not end at its deadline", .got = fmt::format("{} after {:.2f} s", late, seconds));
      const auto [aborted, soon] = bench.in_vain(idle, true, 20'000'000'000);
      TW_REQUIRE(aborted == sides && soon < 2, ErrorKind::lost, .where = "a wait after an abort",
                 .what = "it did not end", .got = fmt::format("{} after {:.2f} s", aborted, soon));
    }
    bench.expect_right({300, 300, 300}, kBf16, true, Around::aligned, 1);  // the next kernel knows nothing of it
  });
}

TEST(HopperMatmul, ProcessesHowFast) {
  on_hopper([](Bench& bench) {
    for (const Shape shape : {Shape{1024, 8192, 4096}, Shape{4096, 8192, 4096}}) {
      for (const Type& type : {kBf16, kTypes[2]}) {
        const double us = bench.time(shape, type);
        fmt::print("{}x{}x{} {}: {:.1f} us, {:.0f} TFLOP/s\n", shape.m, shape.n, shape.k, type.name, us,
                   2e-6 * shape.m * shape.n * shape.k / us);
        bench.expect_compared("the timed product", type, false);
      }
    }
  });
}

}  // namespace
}  // namespace tileway::cuda
