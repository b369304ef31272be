// A product and what is done to its elements, one step after the other as if each were a body of its own: same bits.
#include <array>
#include <vector>

#include "exec/host/kernels/all.hpp"

namespace tileway::host {
namespace {

// A dense matrix that lives between two steps.
struct Between {
  std::vector<std::byte> bytes;
  View view;

  Between(DType dtype, const Dims& extent)
      : bytes(static_cast<std::size_t>(volume(extent)) * size_of(dtype)),
        view{bytes.data(), dtype, extent, row_major_strides(extent)} {}
};

}  // namespace

void matmul_and_more(const Arguments& arguments) {
  Body product = arguments.body;
  product.epilogue.clear();
  const View& to = arguments.writes[0];
  Between so_far(arguments.reads[0].dtype, to.extent);
  matmul({product, arguments.reads.first(2), std::span(&so_far.view, 1)});
  const std::vector<Step>& steps = arguments.body.epilogue;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const Step& step = steps[s];
    std::vector<View> reads;
    for (std::int32_t operand : step.operands) {
      if (operand != Step::kNone)
        reads.push_back(operand == Step::kSoFar ? so_far.view : arguments.reads[static_cast<std::size_t>(operand)]);
    }
    const Body body{.kind = step.cast ? Body::Kind::cast : Body::Kind::pointwise, .function = step.function};
    if (s + 1 == steps.size()) return run_body({body, reads, std::span(&to, 1)});
    Between next(step.dtype, to.extent);
    run_body({body, reads, std::span(&next.view, 1)});
    so_far = std::move(next);
  }
}

}  // namespace tileway::host
