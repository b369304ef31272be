// Placement rules: the type of an operation's result, or the reason why there is none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tileway/program.hpp"

namespace tileway {

// The operands' types, and how to refuse. `members` is the size of the operands' group.
struct Inference {
  const Program& program;
  const Op& op;
  std::vector<TensorType> operands;
  int members = 1;

  // Throws Error (invalid) whose `where` names the operation, its operands and the line that wrote it.
  [[noreturn]] void refuse(std::string what, std::string expected = {}, std::string got = {},
                           std::string hint = {}) const;
};

// Type-checks an operation against the program so far.
TensorType infer(const Program& program, const Op& op);

// Shard sizes filled in (torch.chunk) and checked against the extent; the dimension checked against the shape.
Placement resolved(const Inference& in, Placement placement, const Shape& shape, int members);

TensorType infer_pointwise(const Inference& in);
TensorType infer_matmul(const Inference& in);
TensorType infer_scaled_matmul(const Inference& in);
TensorType infer_rows(const Inference& in);  // softmax and the norms
TensorType infer_reduce_dim(const Inference& in);
TensorType infer_reshape(const Inference& in);
TensorType infer_transpose(const Inference& in);
TensorType infer_slice(const Inference& in);
TensorType infer_gather_rows(const Inference& in);
TensorType infer_embedding_bag(const Inference& in);
TensorType infer_update(const Inference& in);
TensorType infer_communication(const Inference& in);  // and shard

}  // namespace tileway
