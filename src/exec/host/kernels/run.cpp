#include "exec/host/kernels/all.hpp"
#include "tileway/error.hpp"

namespace tileway::host {

void run_body(const Arguments& arguments) {
  switch (arguments.body.kind) {
    case Body::Kind::none:
      return;
    case Body::Kind::copy:
      return copy(arguments);
    case Body::Kind::cast:
      return cast(arguments);
    case Body::Kind::pointwise:
      return pointwise(arguments);
    case Body::Kind::matmul:
      return arguments.body.epilogue.empty() ? matmul(arguments) : matmul_and_more(arguments);
    case Body::Kind::scaled_matmul:
      return scaled_matmul(arguments);
    case Body::Kind::softmax:
      return softmax(arguments);
    case Body::Kind::layer_norm:
      return layer_norm(arguments);
    case Body::Kind::rms_norm:
      return rms_norm(arguments);
    case Body::Kind::reduce_dim:
      return reduce_dim(arguments);
    case Body::Kind::transpose:
      return transpose(arguments);
    case Body::Kind::gather_rows:
      return gather_rows(arguments);
    case Body::Kind::embedding_bag:
      return embedding_bag(arguments);
    case Body::Kind::reduce_ranks:
      return reduce_ranks(arguments);
    case Body::Kind::copy_rows:
      return copy_rows(arguments);
    case Body::Kind::zero_rows:
      return zero_rows(arguments);
    case Body::Kind::all_reduce:
    case Body::Kind::reduce_scatter:
    case Body::Kind::exchange:
      break;
  }
  TW_ASSERT(!"a joint is no single member's");
}

}  // namespace tileway::host
