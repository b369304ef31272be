// DLRM's embedding layer: tables are spread over the ranks, pooled rows go to the rank that owns the sample.
#include "tileway/ops.hpp"

namespace tileway {
namespace {

constexpr std::int64_t kTableRows = 1000;

void build(Program& p, DType dtype, std::span<const std::int64_t> size) {
  const std::int64_t batch = size[0], tables = size[1], width = size[2], pooling = size[3];
  const Tensor table = p.input("tables", dtype, {tables, kTableRows, width}, Shard(0));
  const Tensor indices = p.input("indices", DType::i64, {tables, batch, pooling}, Shard(0));
  p.output("y", all_to_all(embedding_bag(table, indices), 1));
}

const RegisterOperator kRegister({"embedding_all_to_all",
                                  "y = all_to_all(embedding_bag(tables, indices)), by sample",
                                  {"B", "T", "D", "L"},
                                  {256, 16, 64, 16},
                                  build});

}  // namespace
}  // namespace tileway
