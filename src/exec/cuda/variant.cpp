#include "exec/cuda/variant.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>
#include <vector>

#include "exec/cuda/addresses.hpp"
#include "exec/cuda/tensor_places.hpp"
#include "tileway/error.hpp"

namespace tileway::cuda {
namespace {

// Of elements that are computed with.
std::string element(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::e4m3:
      return "e4m3";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::f64:
      break;
  }
  TW_ASSERT(!"plans hold no f64");
  return {};
}

// Of elements that are only moved.
std::string bits(DType dtype) { return fmt::format("u{}", 8 * size_of(dtype)); }

bool scaled(const std::string& variant) { return variant.starts_with("scaled_matmul"); }
bool multiplies(const std::string& variant) { return variant.starts_with("matmul") || scaled(variant); }

// "Apply<Function::add, bf16, kSoFar, 2>": of device/tileway/epilogue.cuh.
std::string step_text(const Step& step) {
  if (step.cast) return fmt::format("Cast<{}>", element(step.dtype));
  std::string text = fmt::format("Apply<Function::{}, {}", name_of(step.function), element(step.dtype));
  for (std::int32_t operand : step.operands) {
    if (operand != Step::kNone) text += operand == Step::kSoFar ? ", kSoFar" : fmt::format(", {}", operand);
  }
  return text + ">";
}

// What is stored: "bf16", and the steps on the way there.
std::string result_text(const Body& body, DType dtype) {
  std::string text = element(dtype);
  for (const Step& step : body.epilogue) text += ", " + step_text(step);
  return text;
}

// Tensor cores multiply f32 only if it may be rounded.
std::string product(const Body& body, DType operands, DType result) {
  const std::string rest = body.epilogue.empty() ? "" : ", " + result_text(body, result);
  if (body.tf32) return fmt::format("matmul_mma<float, MmaOperands::tf32{}>", rest);
  if (operands == DType::f32) return fmt::format("matmul_plain<float{}>", rest);
  return fmt::format("matmul_mma<{}{}{}>", element(operands), rest.empty() ? "" : ", MmaOperands::exact", rest);
}

// What asks for the shared memory of a product: of all that its variant says only the type of the elements matters.
std::string shared_bytes(const std::string& product) {
  std::string call = product.substr(0, product.find_first_of(",>")) + ">()";
  return call.insert(call.find('<'), "_shared_bytes");
}

void require_fp8(const std::string& architecture) {  // as sm_90a
  constexpr int kFirst = 89;
  const std::size_t number = std::min(architecture.find_first_of("0123456789"), architecture.size());
  TW_REQUIRE(std::atoi(architecture.c_str() + number) >= kFirst, ErrorKind::invalid,
             .where = "kernels for " + architecture, .what = "fp8 products need sm_89 or newer", .got = architecture,
             .hint = "cast to bf16 and use matmul");
}

}  // namespace

std::string variant_of(const Plan& plan, const Task& task) {
  const Body& body = plan.bodies[task.body];
  const auto read = [&](std::size_t i) { return plan.buffers[task.reads[i].buffer].dtype; };
  const auto write = [&] { return plan.buffers[task.writes[0].buffer].dtype; };
  const std::string name(name_of(body.kind));
  switch (body.kind) {
    case Body::Kind::none:
      return "nothing";
    case Body::Kind::copy:
    case Body::Kind::transpose:
      return fmt::format("{}<{}>", name, bits(write()));
    case Body::Kind::cast:
      return fmt::format("cast<{}, {}>", element(read(0)), element(write()));
    case Body::Kind::matmul:
      return product(body, read(0), write());
    case Body::Kind::gather_rows:
      return fmt::format("gather_rows<{}, {}>", bits(write()), element(read(1)));
    case Body::Kind::embedding_bag:
      return fmt::format("embedding_bag<{}, {}>", element(write()), element(read(1)));
    case Body::Kind::copy_rows:
    case Body::Kind::zero_rows:
      return fmt::format("{}<{}, {}>", name, bits(write()), element(read(0)));
    case Body::Kind::reduce_ranks:
      return fmt::format("{}<{}, ReduceOp::{}>", name, element(write()), name_of(body.op));
    case Body::Kind::pointwise:
      return fmt::format("{}<{}, Function::{}>", name, element(write()), name_of(body.function));
    case Body::Kind::scaled_matmul:
    case Body::Kind::softmax:
    case Body::Kind::layer_norm:
    case Body::Kind::rms_norm:
    case Body::Kind::reduce_dim:
    case Body::Kind::all_reduce:
    case Body::Kind::reduce_scatter:
    case Body::Kind::exchange:
      break;
  }
  return fmt::format("{}<{}>", name, element(write()));
}

KernelText::KernelText(const Plan& plan, std::string architecture, const std::map<BufferId, Address>& brought)
    : architecture_(std::move(architecture)) {
  const PlanLayout layout(plan);
  const Addresses addresses{plan, layout, std::vector<Address>(plan.ranks()), 0, brought};
  std::map<std::string, std::string> products;  // variants, and what a pipeline is told of each
  std::set<DType> operands;
  bool all_loadable = true;
  for (const Lane& lane : plan.lanes) {
    library_ = library_ || lane.engine == Engine::library;
    if (lane.engine != Engine::compute) continue;
    for (TaskId id : lane.tasks) {
      const Task& task = plan.tasks[id];
      const std::string variant = variant_of(plan, task);
      numbers_.emplace(variant, 0);
      if (!multiplies(variant)) continue;
      if (scaled(variant)) require_fp8(architecture_);
      products[variant] = result_text(plan.bodies[task.body], plan.buffers[task.writes[0].buffer].dtype);
      operands.insert(plan.buffers[task.reads[0].buffer].dtype);
      all_loadable = all_loadable && loadable(addresses, task).has_value();
    }
  }
  std::uint32_t number = 0;
  for (auto& [variant, its_number] : numbers_) its_number = number++;
  if (architecture_ != "sm_90a" || operands.size() != 1 || !all_loadable) return;
  pipeline_ = "HopperPipeline<" + element(*operands.begin());
  for (const auto& [variant, result] : products) {
    ahead_.insert(variant);
    pipeline_ +=
        fmt::format(",\n                                   HopperProduct<{}, {}>", numbers_.at(variant), result);
  }
  pipeline_ += ">";
}

std::string KernelText::products_text() const {
  if (!ahead_.empty()) return "by wgmma, operands loaded by TMA";
  std::string text;
  for (const auto& [variant, number] : numbers_) {
    if (!multiplies(variant)) continue;
    const bool cores = variant.find("plain") != std::string::npos;
    if (!text.empty()) text += ", ";
    text += cores ? "in fp32 on CUDA cores" : "by mma.sync";
  }
  if (text.empty()) return library_ ? "by cuBLASLt" : "none";
  if (architecture_ == "sm_90a" && text == "by mma.sync")
    text += ": a box or its rows do not begin at multiples of 16 bytes";
  return text;
}

std::string KernelText::source() const {
  // A function each, which the assembler makes ten times sooner than all in one. They are called by their addresses: to
  // functions that it knows to call each other it allots registers together, and keeps what one lacks in memory. But
  // beside wgmma no function may be called that it does not know.
  const bool by_address = ahead_.empty();
  std::string functions;
  std::string table;
  std::string cases;
  std::string shared = "0";
  for (const auto& [variant, number] : numbers_) {
    if (loads_ahead(variant)) continue;
    functions += fmt::format("__device__ __noinline__ void body_{}(const Arguments& arguments) {{ {}(arguments); }}\n",
                             number, variant);
    table += fmt::format("body_{}, ", number);
    cases += fmt::format("      case {0}:\n        return body_{0}(arguments);\n", number);
    if (multiplies(variant)) shared = fmt::format("larger({}, {})", shared_bytes(variant), shared);
  }
  if (by_address) {
    functions += fmt::format("__device__ void (*const kBodies[])(const Arguments&) = {{{}nullptr}};\n", table);
    cases = "      default:\n        return kBodies[variant](arguments);\n";
  }
  return fmt::format(R"(#include "tileway/bodies.cuh"
#include "tileway/lane.cuh"
{}
namespace tileway {{
{}struct Bodies {{
  using Pipeline = {};
  __device__ static void run(u32 variant, const Arguments& arguments) {{
    switch (variant) {{
{}    }}
  }}
}};
constexpr u32 kSharedBytes = Bodies::Pipeline::kRingBytes + larger(Bodies::Pipeline::kSharedBytes, {});
}}  // namespace tileway

extern "C" __device__ tileway::u32 tileway_shared_bytes = tileway::kSharedBytes;
extern "C" __global__ void __launch_bounds__(tileway::kBlockThreads, 1)
    tileway_run(const __grid_constant__ tileway::Launch launch) {{
  extern __shared__ __align__(1024) tileway::u8 shared[];
  tileway::run_rank<tileway::Bodies>(launch, shared);
}}
extern "C" __global__ void tileway_clock(tileway::u64* time) {{ *time = tileway::now_ns(); }}
)",
                     ahead_.empty() ? "" : "#include \"tileway/pipeline.cuh\"", functions, pipeline_, cases, shared);
}

}  // namespace tileway::cuda
