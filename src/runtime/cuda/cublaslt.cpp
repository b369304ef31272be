#include "runtime/cuda/cublaslt.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/env.hpp"
#include "runtime/cuda/cublaslt_constants.hpp"
#include "runtime/cuda/library.hpp"
#include "runtime/cuda/memory.hpp"
#include "tileway/error.hpp"

namespace tileway::cuda {
namespace {

using namespace cublaslt;

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // what NVIDIA advises for Hopper

// cuBLASLt, as far as it is used; its functions return a cublasStatus_t. Descriptors are opaque.
struct CublasLt {
  Library library;
  std::size_t (*GetVersion)() = nullptr;
  const char* (*GetStatusString)(int status) = nullptr;
  int (*Create)(void** handle) = nullptr;
  int (*Destroy)(void* handle) = nullptr;
  int (*MatmulDescCreate)(void** description, int compute_type, int scale_type) = nullptr;
  int (*MatmulDescDestroy)(void* description) = nullptr;
  int (*MatmulDescSetAttribute)(void* description, int attribute, const void* value, std::size_t bytes) = nullptr;
  int (*MatrixLayoutCreate)(void** layout, int type, std::uint64_t rows, std::uint64_t columns,
                            std::int64_t leading_dimension) = nullptr;
  int (*MatrixLayoutDestroy)(void* layout) = nullptr;
  int (*MatrixLayoutSetAttribute)(void* layout, int attribute, const void* value, std::size_t bytes) = nullptr;
  int (*MatmulPreferenceCreate)(void** preference) = nullptr;
  int (*MatmulPreferenceDestroy)(void* preference) = nullptr;
  int (*MatmulPreferenceSetAttribute)(void* preference, int attribute, const void* value, std::size_t bytes) = nullptr;
  int (*MatmulAlgoGetHeuristic)(void* handle, void* description, void* a, void* b, void* c, void* d, void* preference,
                                int wanted, HeuristicResult* results, int* found) = nullptr;
  int (*MatmulAlgoConfigGetAttribute)(const Algorithm* algorithm, int attribute, void* value, std::size_t bytes,
                                      std::size_t* written) = nullptr;
  int (*Matmul)(void* handle, void* description, const void* alpha, const void* a, void* a_layout, const void* b,
                void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                const Algorithm* algorithm, void* workspace, std::size_t workspace_bytes, Stream stream) = nullptr;
  std::string why_not;

  CublasLt() : library(files()) {
    if (!library.found()) {
      why_not = library.where();
      return;
    }
    const auto take = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.find(name));
      if (!function && why_not.empty()) why_not = fmt::format("{} is too old: it lacks {}", library.where(), name);
    };
    take(GetVersion, "cublasLtGetVersion");
    take(GetStatusString, "cublasLtGetStatusString");
    take(Create, "cublasLtCreate");
    take(Destroy, "cublasLtDestroy");
    take(MatmulDescCreate, "cublasLtMatmulDescCreate");
    take(MatmulDescDestroy, "cublasLtMatmulDescDestroy");
    take(MatmulDescSetAttribute, "cublasLtMatmulDescSetAttribute");
    take(MatrixLayoutCreate, "cublasLtMatrixLayoutCreate");
    take(MatrixLayoutDestroy, "cublasLtMatrixLayoutDestroy");
    take(MatrixLayoutSetAttribute, "cublasLtMatrixLayoutSetAttribute");
    take(MatmulPreferenceCreate, "cublasLtMatmulPreferenceCreate");
    take(MatmulPreferenceDestroy, "cublasLtMatmulPreferenceDestroy");
    take(MatmulPreferenceSetAttribute, "cublasLtMatmulPreferenceSetAttribute");
    take(MatmulAlgoGetHeuristic, "cublasLtMatmulAlgoGetHeuristic");
    take(MatmulAlgoConfigGetAttribute, "cublasLtMatmulAlgoConfigGetAttribute");
    take(Matmul, "cublasLtMatmul");
  }

  static std::vector<std::string> files() {
    std::vector<std::string> all{"libcublasLt.so.13", "libcublasLt.so.12"};
    if (const std::string file = env::cublaslt(); !file.empty()) all.insert(all.begin(), file);
    return all;
  }
};

const CublasLt& cublas() {
  static const CublasLt once;
  return once;
}

void require(int status, const char* step) {
  TW_REQUIRE(status == kSuccess, ErrorKind::system, .where = "cuBLASLt", .what = fmt::format("{} failed", step),
             .got = fmt::format("{} ({})", cublas().GetStatusString(status), status));
}

int type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return kFloat;
    case DType::f16:
      return kHalf;
    case DType::bf16:
      return kBfloat16;
    default:
      break;
  }
  TW_ASSERT(!"a plan's products are of f32, f16 or bf16");
  return -1;
}

// A descriptor, destroyed by its own function.
using Destroyer = int (*)(void*);
using Descriptor = std::unique_ptr<void, Destroyer>;

template <typename Value>
void set(int (*setter)(void*, int, const void*, std::size_t), const Descriptor& descriptor, int attribute,
         Value value) {
  require(setter(descriptor.get(), attribute, &value, sizeof(value)), "describing a product");
}

// Row-major matrices are column-major ones of the transposes.
Descriptor layout_of(const Products& products, const Products::Matrices& matrices, std::int64_t rows,
                     std::int64_t columns) {
  void* layout = nullptr;
  require(cublas().MatrixLayoutCreate(&layout, type_of(products.dtype), static_cast<std::uint64_t>(columns),
                                      static_cast<std::uint64_t>(rows), matrices.row_stride),
          "describing a matrix");
  Descriptor descriptor(layout, cublas().MatrixLayoutDestroy);
  if (products.count > 1) {
    const auto setter = cublas().MatrixLayoutSetAttribute;
    set(setter, descriptor, kBatchCount, static_cast<std::int32_t>(products.count));
    set(setter, descriptor, kStridedBatchOffset, matrices.batch_stride);
  }
  return descriptor;
}

// The largest power of two up to 256 that divides the address of each of the matrices.
std::uint32_t alignment_of(const Products& products, const Products::Matrices& matrices) {
  constexpr std::uint64_t kMost = 256;
  std::uint64_t bits = matrices.first | kMost;
  if (products.count > 1) bits |= static_cast<std::uint64_t>(matrices.batch_stride) * size_of(products.dtype);
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

int cluster_of(const Algorithm& algorithm) {
  std::uint16_t shape = 0;
  std::size_t written = 0;
  if (cublas().MatmulAlgoConfigGetAttribute(&algorithm, kClusterShape, &shape, sizeof(shape), &written) != kSuccess)
    return 1;  // it knows of no clusters
  return shape < kClusterBlocks.size() ? kClusterBlocks[shape] : kLargestCluster;
}

// What cuBLASLt calls a and b are our b and a: c' = b' a'.
struct Call {
  Products products;
  Descriptor description{nullptr, nullptr};
  Descriptor a{nullptr, nullptr};
  Descriptor b{nullptr, nullptr};
  Descriptor c{nullptr, nullptr};
  Algorithm algorithm{};
};

// The library's first choice that finds room beside what else runs on the device.
std::optional<Algorithm> choose(void* handle, const Call& call, int multiprocessors,
                                const std::array<std::uint32_t, 3>& alignments) {
  constexpr int kWanted = 32;
  void* made = nullptr;
  require(cublas().MatmulPreferenceCreate(&made), "describing a product");
  const Descriptor preference(made, cublas().MatmulPreferenceDestroy);
  const auto setter = cublas().MatmulPreferenceSetAttribute;
  set(setter, preference, kMaxWorkspaceBytes, static_cast<std::uint64_t>(kWorkspaceBytes));
  set(setter, preference, kReductionSchemeMask, kReduceInComputeType);
  set(setter, preference, kMinAlignmentOfA, alignments[1]);
  set(setter, preference, kMinAlignmentOfB, alignments[0]);
  set(setter, preference, kMinAlignmentOfC, alignments[2]);
  set(setter, preference, kMinAlignmentOfD, alignments[2]);
  std::array<HeuristicResult, kWanted> results{};
  int found = 0;
  const int status =
      cublas().MatmulAlgoGetHeuristic(handle, call.description.get(), call.b.get(), call.a.get(), call.c.get(),
                                      call.c.get(), preference.get(), kWanted, results.data(), &found);
  if (status != kSuccess) return {};  // it has nothing for this
  for (int i = 0; i < found; ++i) {
    const bool fits = cluster_of(results[i].algorithm) <= largest_cluster(multiprocessors);
    if (results[i].state == kSuccess && fits) return results[i].algorithm;
  }
  return {};
}

}  // namespace

bool products_found() { return cublas().why_not.empty(); }

std::string products_text() {
  if (!products_found()) return cublas().why_not;
  const std::size_t version = cublas().GetVersion();
  return fmt::format("cuBLASLt {}.{}.{} ({})", version / 10000, version / 100 % 100, version % 100,
                     cublas().library.where());
}

struct Multiplier::State {
  explicit State(int left) : multiprocessors(left), workspace(kWorkspaceBytes) {
    require(cublas().Create(&handle), "starting it");
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { cublas().Destroy(handle); }

  int multiprocessors;
  DeviceMemory workspace;
  void* handle = nullptr;
  std::vector<Call> calls;
};

Multiplier::Multiplier(int multiprocessors) {
  TW_REQUIRE(products_found(), ErrorKind::system, .where = "cuBLASLt",
             .what = "it is not there, and the plan has products for it", .got = products_text(),
             .hint =
                 "Install the CUDA toolkit or pip install nvidia-cublas (TILEWAY_CUBLASLT names its file), or choose "
                 "another schedule");
  state_ = std::make_unique<State>(multiprocessors);
}

Multiplier::~Multiplier() = default;

std::size_t Multiplier::prepare(const Products& products, const std::string& where) {
  Call& call = state_->calls.emplace_back(Call{.products = products});
  const std::size_t number = state_->calls.size() - 1;
  if (products.k == 0) return number;
  void* description = nullptr;
  require(cublas().MatmulDescCreate(&description, products.tf32 ? kCompute32FFastTf32 : kCompute32F, kFloat),
          "describing a product");
  call.description = Descriptor(description, cublas().MatmulDescDestroy);
  set(cublas().MatmulDescSetAttribute, call.description, kMultiprocessorTarget,
      static_cast<std::int32_t>(state_->multiprocessors));
  call.a = layout_of(products, products.a, products.m, products.k);
  call.b = layout_of(products, products.b, products.k, products.n);
  call.c = layout_of(products, products.c, products.m, products.n);
  const auto element = static_cast<std::uint32_t>(size_of(products.dtype));
  std::optional<Algorithm> algorithm = choose(
      state_->handle, call, state_->multiprocessors,
      {alignment_of(products, products.a), alignment_of(products, products.b), alignment_of(products, products.c)});
  // It may know more about any alignment than about a strange one.
  if (!algorithm) algorithm = choose(state_->handle, call, state_->multiprocessors, {element, element, element});
  TW_REQUIRE(algorithm.has_value(), ErrorKind::invalid, .where = where,
             .what = fmt::format(
                 "{} has no way to multiply {}x{} by {}x{} of {}{} on {} multiprocessors", products_text(), products.m,
                 products.k, products.k, products.n, products.tf32 ? "tf32" : name_of(products.dtype),
                 products.count > 1 ? fmt::format(", {} times", products.count) : "", state_->multiprocessors),
             .hint = "Leave this product to compute lanes, or give the library more multiprocessors");
  call.algorithm = *algorithm;
  return number;
}

void Multiplier::multiply(std::size_t prepared, Stream stream) const {
  const Call& call = state_->calls[prepared];
  const Products& products = call.products;
  if (products.k == 0) {
    const std::size_t element = size_of(products.dtype);
    for (std::int64_t i = 0; i < products.count; ++i) {
      check(driver()->MemsetD2D8Async(
                products.c.first + static_cast<std::uint64_t>(i * products.c.batch_stride) * element,
                static_cast<std::size_t>(products.c.row_stride) * element, 0,
                static_cast<std::size_t>(products.n) * element, static_cast<std::size_t>(products.m), stream),
            "writing zeros");
    }
    return;
  }
  const float one = 1;
  const float zero = 0;
  const auto pointer = [](const Products::Matrices& matrices) { return reinterpret_cast<void*>(matrices.first); };
  require(cublas().Matmul(state_->handle, call.description.get(), &one, pointer(products.b), call.b.get(),
                          pointer(products.a), call.a.get(), &zero, pointer(products.c), call.c.get(),
                          pointer(products.c), call.c.get(), &call.algorithm,
                          reinterpret_cast<void*>(state_->workspace.address()), kWorkspaceBytes, stream),
          "a product");
}

}  // namespace tileway::cuda
