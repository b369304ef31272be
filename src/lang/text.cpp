// A program for a person: one line an operation.
#include <fmt/format.h>

#include "tileway/program.hpp"

namespace tileway {
namespace {

std::string arguments(const Op& op) {
  std::string text;
  const auto put = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  for (int operand : op.operands) put(fmt::format("%{}", operand));
  switch (op.kind) {
    case OpKind::input:
      put("'" + op.name + "'");
      break;
    case OpKind::constant:
      put(fmt::format("{}", op.value));
      break;
    case OpKind::matmul:
      if (op.precision != Precision::exact) put(std::string(name_of(op.precision)));
      break;
    case OpKind::scaled_matmul:
      put(std::string(name_of(op.dtype)));
      break;
    case OpKind::layer_norm:
    case OpKind::rms_norm:
      put(fmt::format("epsilon={}", op.value));
      break;
    case OpKind::reduce_dim:
      put(fmt::format("{}, dim={}", name_of(op.reduce), op.dim));
      break;
    case OpKind::embedding_bag:
      put(std::string(name_of(op.reduce)));
      break;
    case OpKind::transpose:
      put(to_string(op.shape));
      break;
    case OpKind::slice:
      put(fmt::format("dim={}, {}:{}", op.dim, op.start, op.start + op.extent));
      break;
    case OpKind::broadcast:
    case OpKind::reduce:
      put(fmt::format("root={}", op.dim));
      break;
    default:
      break;
  }
  return text;
}

}  // namespace

std::string Program::to_text() const {
  std::string text = fmt::format("program {} over {} ranks\n", name_, world());
  for (std::size_t g = 1; g < groups_.size(); ++g)
    text += fmt::format("group {}: ranks [{}]\n", g, fmt::join(groups_[g], ", "));
  for (std::size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = ops_[i];
    const std::string_view name = op.kind == OpKind::pointwise ? name_of(op.function) : name_of(op.kind);
    text += fmt::format("%{} = {}({}) : {}", i, name, arguments(op), to_string(op.type));
    if (op.type.group != 0) text += fmt::format(" group {}", op.type.group);
    text += op.where.empty() ? "\n" : "  # " + op.where + "\n";
  }
  for (const Output& output : outputs_) text += fmt::format("output '{}' = %{}\n", output.name, output.op);
  return text;
}

}  // namespace tileway
