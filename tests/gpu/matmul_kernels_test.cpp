// Products of matrices on a GPU, every element against sums in fp64 by a kernel that does nothing else. scripts/gpu.sh
// runs it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "runtime/cuda/compile.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/memory.hpp"
#include "tileway/error.hpp"
#include "tileway/group.hpp"
#include "tileway/table.cuh"

namespace tileway::cuda {
namespace {

// What is compiled for each type of Element and, where kScaled, for each Result of products of e4m3: then B is given
// transposed, and views of scales follow it. Values depend on an element's place in its matrix, not in memory.
constexpr const char* kSource = R"(
#include "tileway/matmul_mma.cuh"
#include "tileway/matmul_plain.cuh"
using namespace tileway;
constexpr u32 kReads = kScaled ? 4 : 2;

template <typename Body>
__device__ void follow(const View* views, u32 tasks, u32 shared_bytes, Body body) {
  extern __shared__ __align__(1024) u8 shared[];
  if (threadIdx.x < kServiceThreads) return;
  for (u32 i = worker(); i < shared_bytes; i += kWorkers) shared[i] = 0xff;  // not a number
  sync_workers();
  const BodyRow unused{};
  for (u32 task = blockIdx.x; task < tasks; task += gridDim.x) {
    const View* own = views + (kReads + 1) * task;
    body(Arguments{unused, own, own + kReads, kReads, 1, shared, 0, nullptr, nullptr});
  }
}
extern "C" __global__ void __launch_bounds__(kBlockThreads, 1) plain(const View* views, u32 tasks, u32 bytes) {
  follow(views, tasks, bytes, [](const auto& arguments) {
    if constexpr (!kScaled) matmul_plain<Element>(arguments);
  });
}
extern "C" __global__ void __launch_bounds__(kBlockThreads, 1) mma(const View* views, u32 tasks, u32 bytes) {
  constexpr MmaOperands kOperands = sizeof(Element) <= 2 ? MmaOperands::exact : MmaOperands::tf32;
  follow(views, tasks, bytes, [](const Arguments& arguments) { matmul_mma<Element, kOperands, Result>(arguments); });
}
extern "C" __global__ void shared_bytes(u32* answer) {
  answer[0] = matmul_plain_shared_bytes<Element>();
  answer[1] = matmul_mma_shared_bytes<Element, Result>();
}

__device__ u32 mixed(u64 value) {
  value = (value ^ value >> 31) * 0x9e3779b97f4a7c15ull;
  value = (value ^ value >> 29) * 0xbf58476d1ce4e5b9ull;
  return static_cast<u32>(value >> 32);
}
// The element with this number, counting row by row, and its indices.
struct Place {
  i64 index[kMaxViewDims];
};
__device__ Place place_of(const View& view, i64 number) {
  Place place{};
  for (u32 d = view.dims; d-- > 0;) {
    place.index[d] = number % view.extent[d];
    number /= view.extent[d];
  }
  return place;
}
template <typename T>
__device__ T* element(const View& view, const Place& place) {
  i64 offset = 0;
  for (u32 d = 0; d < view.dims; ++d) offset += place.index[d] * view.stride[d];
  return at<T>(view, offset);
}

// Integers from -4 to 4, or normals.
extern "C" __global__ void fill(const View* to, u32 seed, u32 integers) {
  const i64 count = volume(*to);
  for (i64 i = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const u32 random = mixed(static_cast<u64>(i) << 20 ^ seed);
    const float value = integers ? static_cast<float>(static_cast<i32>(random % 9) - 4)
                                 : normcdfinvf((static_cast<float>(random >> 8) + 0.5f) * 0x1p-24f);
    *element<Element>(*to, place_of(*to, i)) = narrow<Element>(value);
  }
}
// Powers of two, or numbers from 0.5 to 1.5.
extern "C" __global__ void fill_scales(const View* to, u32 seed, u32 integers) {
  for (i64 i = threadIdx.x; i < volume(*to); i += blockDim.x) {
    const u32 random = mixed(static_cast<u64>(i) << 20 ^ seed);
    *element<float>(*to, place_of(*to, i)) =
        integers ? static_cast<float>(1 << random % 3) : 0.5f + static_cast<float>(random >> 8) * 0x1p-24f;
  }
}

struct Found {
  u64 wrong;
  u64 checksum;
  u32 of_bound;      // the largest error as a part of its bound, and of sum |a| |b|: bits of floats
  u32 of_magnitude;
};
// Each thread one element of C. With integers it must be the sum, rounded; else within
// unit |sum| + relative sum |a| |b| + smallest. What has been looked at is poison again afterwards.
extern "C" __global__ void compare(const View* views, u32 integers, double unit, double relative, double smallest,
                                   Found* found) {
  const View& a = views[0];
  const View& b = views[1];
  const View& c = views[kReads];
  const i64 count = volume(c);
  for (i64 i = blockIdx.x * static_cast<i64>(blockDim.x) + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const Place place = place_of(c, i);
    const auto shared_dims = [&](const View& view) {
      Place own{};
      for (u32 d = 0; d + 2 < view.dims; ++d)
        own.index[d] = view.extent[d] == 1 ? 0 : place.index[c.dims - view.dims + d];
      return own;
    };
    Place row = shared_dims(a);
    Place column = shared_dims(b);
    row.index[a.dims - 2] = place.index[c.dims - 2];
    column.index[b.dims - (kScaled ? 2 : 1)] = place.index[c.dims - 1];
    const Element* x = element<Element>(a, row);
    const Element* y = element<Element>(b, column);
    const i64 step = kScaled ? 1 : b.stride[b.dims - 2];
    double sum = 0, magnitude = 0;
    for (i64 k = 0; k < a.extent[a.dims - 1]; ++k) {
      const double product = static_cast<double>(widen(x[k])) * widen(y[k * step]);
      sum += product;
      magnitude += fabs(product);
    }
    if constexpr (kScaled) {
      const auto scale = [&](const View& view) {
        Place own{};
        for (u32 d = 0; d < 2; ++d) own.index[d] = view.extent[d] == 1 ? 0 : place.index[d];
        return static_cast<double>(*element<float>(view, own));
      };
      const double both = scale(views[2]) * scale(views[3]);
      sum *= both;
      magnitude *= both;
    }
    Result* result = element<Result>(c, place);
    const double got = widen(*result);
    const double error = fabs(got - sum);
    const double bound = (1 + unit) * (unit * fabs(sum) + relative * magnitude) + smallest;
    const bool right = integers ? got == widen(narrow<Result>(static_cast<float>(sum))) : error <= bound;
    if (!right) atomicAdd(&found->wrong, 1ull);
    if (!integers && error > 0) {
      atomicMax(&found->of_bound, __float_as_uint(static_cast<float>(error / bound)));
      atomicMax(&found->of_magnitude, __float_as_uint(static_cast<float>(error / magnitude)));
    }
    u32 bits = 0;
    for (u32 byte = 0; byte < sizeof(Result); ++byte) {
      u8* at = reinterpret_cast<u8*>(result) + byte;
      bits |= static_cast<u32>(*at) << (8 * byte);
      *at = 0xee;
    }
    atomicAdd(&found->checksum, static_cast<u64>(mixed(static_cast<u64>(i) << 32 ^ bits)));
  }
}
extern "C" __global__ void count_touched(const u8* from, u64 bytes, u64* wrong) {
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < bytes; i += gridDim.x * blockDim.x)
    if (from[i] != 0xee) atomicAdd(wrong, 1ull);
}
)";

struct Found {
  std::uint64_t wrong = 0;
  std::uint64_t checksum = 0;
  float of_bound = 0;
  float of_magnitude = 0;
};

struct Type {
  std::string name;  // of the result, and but for fp8 of the operands
  std::int64_t bytes;
  double unit;      // the relative error of rounding to it
  double smallest;  // and the absolute one, where its exponents end
  bool fp8 = false;

  std::string in_source() const { return bytes == 4 ? "float" : "tileway::" + name; }
  std::int64_t operand_bytes() const { return fp8 ? 1 : bytes; }
  std::size_t reads() const { return fp8 ? 4 : 2; }
  std::string text() const { return fp8 ? "e4m3 to " + name : name; }
};

struct Problem {
  std::int64_t m, n, k;
  std::vector<std::int64_t> batch_a{}, batch_b{}, batch_c{};
};
const std::vector<Problem> kProblems{
    {1, 1, 1},
    {7, 16, 97},
    {16, 7, 128},
    {97, 129, 1},
    {97, 128, 0},
    {0, 16, 7},
    {128, 128, 128},
    {129, 97, 16},
    {1, 1001, 129},
    {1001, 1, 97},
    {129, 1001, 7},
    {129, 97, 1001},
    {1001, 129, 128},
    {128, 256, 1024},
    {1024, 1024, 1024},
    {17, 24, 40, {3}, {2, 1}, {2, 3}},
    {129, 70, 65, {}, {5}, {5}},
    {16, 136, 97, {4}, {}, {4}},
    {33, 9, 16, {2, 1, 2, 2}, {1, 3, 1, 2}, {2, 3, 2, 2}},
};

// Where rows start: at multiples of 16 bytes, of two elements, anywhere. Between them and around a matrix lies poison.
enum class Rows { aligned, even, odd };
struct Layout {
  Rows a, b, c;
};
const std::vector<Layout> kLayouts{
    {Rows::aligned, Rows::aligned, Rows::aligned}, {Rows::odd, Rows::odd, Rows::odd},
    {Rows::aligned, Rows::odd, Rows::even},        {Rows::odd, Rows::aligned, Rows::aligned},
    {Rows::even, Rows::even, Rows::odd},
};
struct Tiling {
  std::int64_t rows, columns;
};
const std::vector<Tiling> kTilings{{1 << 20, 1 << 20}, {128, 128}, {37, 75}};

// In the rank's part: what was found, the views, then the matrices.
constexpr std::size_t kWhole = 4096, kTasks = 8192, kMatrices = std::size_t{1} << 20, kMatrix = std::size_t{8} << 20;
constexpr std::size_t kScales = kMatrices + 3 * kMatrix, kScalesOfB = kScales + (1 << 16), kBytes = kScales + (1 << 17);
constexpr unsigned kBlocks = 61;  // fewer than tasks, and no divisor: a block's shared memory is used again

View view_of(Address region, std::int64_t bytes, std::vector<std::int64_t> extents, Rows rows) {
  const std::int64_t aligned = 16 / bytes;
  std::int64_t stride = (extents.back() + aligned - 1) / aligned * aligned + aligned;
  std::int64_t skip = 256 / bytes;
  if (rows == Rows::even) stride += 2, skip += 2;
  if (rows == Rows::odd) stride += 3, skip += 1;
  View view{};
  view.slots = 1;
  view.data = region + static_cast<std::uint64_t>(skip * bytes);
  view.dims = static_cast<std::uint32_t>(extents.size());
  std::int64_t apart = 1;
  for (std::size_t d = extents.size(); d-- > 0;) {
    view.extent[d] = extents[d];
    view.stride[d] = apart;
    apart *= d + 1 == extents.size() ? stride : extents[d];
  }
  TW_REQUIRE(static_cast<std::size_t>((apart + 2 * skip) * bytes) <= kMatrix, ErrorKind::invalid,
             .where = "matmul_kernels_test", .what = "a matrix does not fit");
  return view;
}

std::vector<std::int64_t> extents(std::vector<std::int64_t> batch, std::int64_t rows, std::int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

// The views of tasks, one a tile of the last two dimensions.
std::vector<View> tasks_of(const std::vector<View>& whole, const Type& type, const Tiling& tiling) {
  const View& c = whole.back();
  std::vector<View> views;
  for (std::int64_t row = 0; row < std::max<std::int64_t>(c.extent[c.dims - 2], 1); row += tiling.rows) {
    for (std::int64_t column = 0; column < c.extent[c.dims - 1]; column += tiling.columns) {
      // The part of dimension d, counted from the last, that begins at `start`.
      const auto cut = [](View view, std::uint32_t d, std::int64_t start, std::int64_t most, std::int64_t bytes) {
        i64& extent = view.extent[view.dims - d];
        extent = std::min<std::int64_t>(extent - start, most);
        view.data += static_cast<std::uint64_t>(start * view.stride[view.dims - d] * bytes);
        return view;
      };
      views.push_back(cut(whole[0], 2, row, tiling.rows, type.operand_bytes()));
      views.push_back(cut(whole[1], type.fp8 ? 2 : 1, column, tiling.columns, type.operand_bytes()));
      if (type.fp8) {
        const bool by_row = whole[2].extent[0] > 1;
        const bool by_column = whole[3].extent[1] > 1;
        views.push_back(by_row ? cut(whole[2], 2, row, tiling.rows, 4) : whole[2]);
        views.push_back(by_column ? cut(whole[3], 1, column, tiling.columns, 4) : whole[3]);
      }
      views.push_back(cut(cut(c, 2, row, tiling.rows, type.bytes), 1, column, tiling.columns, type.bytes));
    }
  }
  return views;
}

std::string source_of(const Type& type) {
  return fmt::format(
      "#include \"tileway/types.cuh\"\nusing Element = {};\nusing Result = {};\nconstexpr bool kScaled = {};\n{}",
      type.fp8 ? "tileway::e4m3" : type.in_source(), type.in_source(), type.fp8, kSource);
}

// One module, and what is done with it on the memory of one rank.
class Bench {
 public:
  Bench(const Gpu& gpu, const Type& type, Address memory) : type_(type), memory_(memory) {
    const std::string architecture = architecture_of(gpu);
    const Image image = compile(source_of(type), "matmul_kernels_test_" + type.name, architecture);
    check(driver()->ModuleLoadData(&module_, image.cubin.data()), "loading kernels");
    launch("shared_bytes", 1, 1, 0, memory_);
    check(driver()->CtxSynchronize(), "shared_bytes");
    check(driver()->MemcpyDtoH(shared_bytes_, memory_, sizeof(shared_bytes_)), "reading");
    // More than 48 KiB a kernel has to ask for: CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES.
    const auto set_attribute = driver()->FuncSetAttribute;
    check(set_attribute(function("plain"), 8, static_cast<int>(shared_bytes_[0])), "plain");
    check(set_attribute(function("mma"), 8, static_cast<int>(shared_bytes_[1])), "mma");
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() { driver()->ModuleUnload(module_); }

  unsigned shared_bytes(bool mma) const { return shared_bytes_[mma ? 1 : 0]; }

  // Computes the product and looks at all of it, and at all around it.
  Found run(bool mma, const Problem& problem, const Layout& layout, const Tiling& tiling, bool integers) const {
    const std::int64_t bytes = type_.operand_bytes();
    const auto of_b = type_.fp8 ? std::pair(problem.n, problem.k) : std::pair(problem.k, problem.n);
    std::vector<View> whole{
        view_of(memory_ + kMatrices, bytes, extents(problem.batch_a, problem.m, problem.k), layout.a),
        view_of(memory_ + kMatrices + kMatrix, bytes, extents(problem.batch_b, of_b.first, of_b.second), layout.b)};
    if (type_.fp8) {  // for each row or for all, whichever: for a problem always the same
      whole.push_back(view_of(memory_ + kScales, 4, {problem.m % 4 == 0 ? 1 : problem.m, 1}, Rows::odd));
      whole.push_back(view_of(memory_ + kScalesOfB, 4, {1, problem.n % 8 == 0 ? 1 : problem.n}, Rows::odd));
    }
    whole.push_back(view_of(memory_ + kMatrices + 2 * kMatrix, type_.bytes,
                            extents(problem.batch_c, problem.m, problem.n), layout.c));
    const std::vector<View> tasks = tasks_of(whole, type_, tiling);
    TW_REQUIRE(kTasks + tasks.size() * sizeof(View) <= kMatrices, ErrorKind::invalid, .where = "matmul_kernels_test",
               .what = "the tasks do not fit");
    check(driver()->MemsetD8(memory_, 0, sizeof(Found)), "clearing");
    check(driver()->MemsetD8(memory_ + kMatrices, 0xff, 2 * kMatrix), "poisoning");  // not a number
    check(driver()->MemsetD8(memory_ + kMatrices + 2 * kMatrix, 0xee, kMatrix), "poisoning");
    check(driver()->MemcpyHtoD(memory_ + kWhole, whole.data(), whole.size() * sizeof(View)), "views");
    check(driver()->MemcpyHtoD(memory_ + kTasks, tasks.data(), tasks.size() * sizeof(View)), "views");
    const unsigned integer = integers ? 1 : 0;
    launch("fill", 256, 256, 0, memory_ + kWhole, 1U, integer);
    launch("fill", 256, 256, 0, memory_ + kWhole + sizeof(View), 2U, integer);
    for (unsigned scale = 2; scale < type_.reads(); ++scale)
      launch("fill_scales", 1, 256, 0, memory_ + kWhole + scale * sizeof(View), 1 + scale, integer);
    const auto count = static_cast<unsigned>(tasks.size() / (type_.reads() + 1));
    launch(mma ? "mma" : "plain", std::min(count, kBlocks), 384, shared_bytes(mma), memory_ + kTasks, count,
           shared_bytes(mma));
    launch("compare", 1024, 256, 0, memory_ + kWhole, integer, type_.unit, relative(mma, problem.k), type_.smallest,
           memory_);
    launch("count_touched", 1024, 256, 0, memory_ + kMatrices + 2 * kMatrix, std::uint64_t{kMatrix}, memory_);
    check(driver()->CtxSynchronize(), "multiplying");
    Found found;
    check(driver()->MemcpyDtoH(&found, memory_, sizeof(Found)), "reading");
    return found;
  }

 private:
  // The error of a sum before it is rounded, of sum |a| |b|: 2^-24 a step on the CUDA cores, which round to nearest;
  // twice that on the tensor cores, which cut off; and 2^-11 for each operand that is rounded to tf32. Of 32 products
  // of e4m3 they may keep 13 bits behind the point of the largest.
  double relative(bool mma, std::int64_t k) const {
    const auto steps = static_cast<double>(k);
    if (!mma) return steps * 0x1p-24;
    if (type_.fp8) return 0x1p-8 + steps * 0x1p-24;
    return steps * 0x1p-23 + (type_.bytes == 4 ? 0x1p-10 + 0x1p-22 : 0);
  }
  Function function(const char* name) const {
    Function found = nullptr;
    check(driver()->ModuleGetFunction(&found, module_, name), name);
    return found;
  }
  template <typename... Values>
  void launch(const char* name, unsigned blocks, unsigned threads, unsigned shared, Values... values) const {
    void* list[] = {&values...};
    check(driver()->LaunchKernel(function(name), blocks, 1, 1, threads, 1, 1, shared, nullptr, list, nullptr), name);
  }

  Type type_;
  Address memory_;
  Module module_ = nullptr;
  unsigned shared_bytes_[2] = {};
};

std::string text_of(const Problem& problem, const Layout& layout, const Tiling& tiling, bool integers) {
  const auto rows = [](Rows kind) { return kind == Rows::aligned ? "aligned" : kind == Rows::even ? "even" : "odd"; };
  return fmt::format("{} x {} x {}, {} batch dims, rows {} {} {}, tiles {} x {}, {}", problem.m, problem.n, problem.k,
                     problem.batch_c.size(), rows(layout.a), rows(layout.b), rows(layout.c), tiling.rows,
                     tiling.columns, integers ? "integers" : "normals");
}

// In a process of its own: no CUDA may have begun in one that forks, as other tests do.
void multiply_all(const Type& type, bool mma) {
  Group::spawn(1, [&](Group& group) {
    const std::vector<Gpu> all = gpus();
    if (type.fp8 && (all.empty() || 10 * all[0].major + all[0].minor < 89)) {
      fmt::print("skipped: {}\n", all.empty() ? why_not() : all[0].name + " has no fp8 products");
      return;
    }
    const Device device(0);
    const SymmetricMemory memory(group, device, kBytes);
    const Bench bench(gpus()[0], type, memory.on(0));
    TW_REQUIRE(bench.shared_bytes(mma) <= 100 << 10, ErrorKind::invalid, .where = "shared memory",
               .what = "too much of it");
    int runs = 0;
    Found worst;
    for (const Problem& problem : kProblems) {
      if (type.fp8 && !problem.batch_c.empty()) continue;  // scaled products have no batch
      for (const bool integers : {true, false}) {
        bool first = true;
        std::uint64_t checksum = 0;
        for (const Layout& layout : kLayouts) {
          for (const Tiling& tiling : kTilings) {
            const Found found = bench.run(mma, problem, layout, tiling, integers);
            TW_REQUIRE(found.wrong == 0, ErrorKind::invalid, .where = text_of(problem, layout, tiling, integers),
                       .what = "wrong elements of C, or touched bytes around it", .expected = "0",
                       .got = fmt::format("{}, errors up to {:.3g} of their bound", found.wrong, found.of_bound));
            TW_REQUIRE(first || found.checksum == checksum, ErrorKind::invalid,
                       .where = text_of(problem, layout, tiling, integers),
                       .what = "other bits than tiled or laid out otherwise");
            first = false;
            checksum = found.checksum;
            worst.of_bound = std::max(worst.of_bound, found.of_bound);
            worst.of_magnitude = std::max(worst.of_magnitude, found.of_magnitude);
            ++runs;
          }
        }
      }
    }
    fmt::print(
        "{:5} {:4} {:4} products, every element right; {} bytes of shared memory; errors of normals up to "
        "{:.2e} of sum |a||b|, {:.3f} of their bound\n",
        mma ? "mma" : "plain", type.text(), runs, bench.shared_bytes(mma), worst.of_magnitude, worst.of_bound);
    std::fflush(stdout);
  });
}

const Type kF32{"f32", 4, 0x1p-24, 0};
const Type kBf16{"bf16", 2, 0x1p-8, 0};
const Type kF16{"f16", 2, 0x1p-11, 0x1p-25};

// Products of e4m3, one type of result each; f32 bears two roundings by scales more.
const Type kFp8[]{{"bf16", 2, 0x1p-8, 0, true}, {"f16", 2, 0x1p-11, 0x1p-25, true}, {"f32", 4, 0x1p-22, 0, true}};

// Needs NVRTC but no GPU.
TEST(CudaMatmulKernels, ProcessesKernelsOfFp8Compile) {
  Group::spawn(1, [](Group&) {
    if (!compiler_found()) {
      fmt::print("skipped: {}\n", compiler_text());
      return;
    }
    for (const Type& type : kFp8) {
      for (const char* architecture : {"sm_90a", "sm_100a"})
        compile(source_of(type), "matmul_kernels_test_" + type.name, architecture);
    }
  });
}

TEST(CudaMatmulKernels, ProcessesPlainEveryElementIsRightForAnyLayoutAndTiling) {
  for (const Type& type : {kF32, kBf16, kF16}) multiply_all(type, false);
}

TEST(CudaMatmulKernels, ProcessesMmaEveryElementIsRightForAnyLayoutAndTiling) {
  for (const Type& type : {kF32, kBf16, kF16}) multiply_all(type, true);
}

TEST(CudaMatmulKernels, ProcessesScaledEveryElementOfFp8IsRightForAnyLayoutAndTiling) {
  for (const Type& type : kFp8) multiply_all(type, true);
}

}  // namespace
}  // namespace tileway::cuda
