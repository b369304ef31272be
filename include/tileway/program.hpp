// What is computed: a dataflow graph over distributed tensors, in single-program-multiple-data form.
//
//   Program p("gemm_all_reduce", 4);
//   Tensor x = p.input("x", DType::bf16, {m, k}, Shard(1));
//   Tensor w = p.input("w", DType::bf16, {k, n}, Shard(0));
//   p.output("y", all_reduce(matmul(x, w)));
//
// Every function that adds an operation infers the dtype, shape and placement of its result and throws
// Error (invalid), naming the operation, its operands, the rule and the line that wrote it, when there is none.
// Element-wise functions, matmul and the norms compute in fp32 and round once to the dtype. A sum over ranks rounds
// every rank's partial to the dtype, adds them in fp32 in rank order, and rounds once. A product of f32 may be told to
// round its operands to tf32 first. e4m3 is only cast, moved, and multiplied by scaled_matmul.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "tileway/array.hpp"
#include "tileway/dtype.hpp"
#include "tileway/function.hpp"
#include "tileway/shape.hpp"

namespace tileway {

// How the ranks of a group hold a tensor (the names are those of PyTorch's DTensor).
struct Placement {
  enum class Kind : std::uint8_t { replicate, shard, partial };
  Kind kind = Kind::replicate;
  int dim = 0;                        // shard: the dimension that is cut
  ReduceOp op = ReduceOp::sum;        // partial: what combines the ranks' tensors
  std::vector<std::int64_t> sizes{};  // shard: the extent on each member, filled in when a tensor is made

  bool is_replicate() const { return kind == Kind::replicate; }
  bool is_shard() const { return kind == Kind::shard; }
  bool is_shard(int d) const { return kind == Kind::shard && dim == d; }
  bool is_partial() const { return kind == Kind::partial; }
  friend bool operator==(const Placement&, const Placement&) = default;
};

// Every member holds the whole tensor, with the same values.
Placement Replicate();
// Each member holds a range of dimension `dim`, in rank order. Without sizes it is cut as torch.chunk cuts it:
// ceil(extent / members) each, until nothing is left; sizes may hold zeros and must add up to the extent.
Placement Shard(int dim, std::vector<std::int64_t> sizes = {});
// Every member holds a tensor of the whole shape; the value is their combination (sum, max or min).
Placement Partial(ReduceOp op = ReduceOp::sum);
// "Replicate", "Shard(0, [3, 3, 2])", "Partial(sum)".
std::string to_string(const Placement& placement);

// What is known of a tensor before anything runs.
struct TensorType {
  DType dtype = DType::f32;
  Shape shape;    // of the whole tensor
  int group = 0;  // index into Program::groups
  Placement placement;

  // The part that member `member` of the group holds (the whole shape unless sharded), and where that part begins.
  Shape local_shape(int member) const;
  std::int64_t shard_start(int member) const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};
// "bf16[513, 1025] Shard(0, [257, 256])".
std::string to_string(const TensorType& type);

// The part of a whole array that a member holds. Partial(sum) and other partials have no parts: throws Error (invalid).
Array local_part(const Array& whole, const TensorType& type, int member);
// The whole of what the members hold; combines partials in fp64 and rounds once. Sharded and replicated parts are
// copied bit for bit.
Array joined(const std::vector<Array>& parts, const TensorType& type);

enum class OpKind : std::uint8_t {
  input,
  constant,
  // computation: works on what each rank holds
  pointwise,
  cast,
  matmul,
  scaled_matmul,
  softmax,
  layer_norm,
  rms_norm,
  reduce_dim,
  reshape,
  transpose,
  slice,
  gather_rows,
  embedding_bag,
  shard,
  update,
  // communication
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  all_to_all_v,
  broadcast,
  reduce,
  send,
};
inline constexpr int kOpKindCount = 25;
std::string_view name_of(OpKind kind);
OpKind parse_op_kind(std::string_view text);
bool is_communication(OpKind kind);

// How a product of f32 matrices takes its operands; the products are added in fp32 either way.
enum class Precision : std::uint8_t {
  exact,  // as they are
  tf32,   // each rounded to 10 bits behind the point, to nearest, ties away from zero; the range of exponents is f32's,
          // NaN and infinities stay. What tensor cores multiply fastest, and a part of what the program means
};
inline constexpr int kPrecisionCount = 2;
std::string_view name_of(Precision precision);
Precision parse_precision(std::string_view text);

// One operation and its one result. Which fields mean something depends on the kind; the others keep their defaults.
struct Op {
  OpKind kind = OpKind::input;
  std::vector<int> operands{};        // indices into Program::ops, all smaller than this op's own
  std::string name{};                 // input
  Function function = Function::add;  // pointwise
  ReduceOp reduce = ReduceOp::sum;    // reduce_dim, embedding_bag
  DType dtype = DType::f32;           // input, constant, cast, scaled_matmul
  double value = 0;                   // constant; epsilon of layer_norm and rms_norm
  int dim = 0;                        // reduce_dim, slice; the root of broadcast and reduce
  bool keep_dim = false;              // reduce_dim
  std::int64_t start = 0;             // slice
  std::int64_t extent = 0;            // slice; rows a member can receive in all_to_all_v
  Shape shape{};                      // input, reshape; the permutation of transpose
  Placement placement{};              // input; the target of shard, reduce_scatter and all_to_all
  int group = 0;                      // input, constant, send
  Precision precision{};              // matmul
  std::string where{};                // "file.cpp:12"
  TensorType type{};                  // inferred
};

class Program;

// A handle on the result of an operation. Valid while its program lives.
class Tensor {
 public:
  Tensor(Program* program, int index) : program_(program), index_(index) {}
  Program& program() const { return *program_; }
  int index() const { return index_; }
  const TensorType& type() const;
  DType dtype() const { return type().dtype; }
  const Shape& shape() const { return type().shape; }
  const Placement& placement() const { return type().placement; }

 private:
  Program* program_;
  int index_;
};

using Where = std::source_location;

class Program {
 public:
  struct Output {
    std::string name;
    int op;
  };

  // Group 0 is all `world` ranks.
  Program(std::string name, int world);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  Program(Program&&) = default;
  Program& operator=(Program&&) = default;

  // A subgroup: ascending world ranks. The same ranks give the same index again.
  int group(std::vector<int> ranks, Where where = Where::current());
  // Memory that the caller fills before a run. Names are unique.
  Tensor input(std::string name, DType dtype, Shape shape, Placement placement, int group = 0,
               Where where = Where::current());
  // The same value everywhere; a scalar (shape []).
  Tensor constant(double value, DType dtype, int group = 0, Where where = Where::current());
  // What the caller reads after a run. Names are unique.
  void output(std::string name, Tensor value, Where where = Where::current());

  const std::string& name() const { return name_; }
  int world() const { return static_cast<int>(groups_[0].size()); }
  const std::vector<std::vector<int>>& groups() const { return groups_; }
  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  // Index of a world rank in a group, or -1.
  int member(int group, int rank) const;
  // The op that updates input `op` in place, or -1.
  int updated_by(int op) const;

  // How matmul() takes f32 operands from here on where it is not told, as torch.set_float32_matmul_precision says it;
  // exact at first. Products of other dtypes are not touched. It is no part of the program: each product keeps its own.
  void set_matmul_precision(Precision precision) { matmul_precision_ = precision; }
  Precision matmul_precision() const { return matmul_precision_; }

  // Adds an operation: the one door, for builders and for files. Fills in `type`.
  Tensor append(Op op);

  // One line an operation, for a person.
  std::string to_text() const;
  // A file format (JSON, one operation an entry, in order) and its inverse. from_json refuses what is malformed or
  // breaks a rule, naming the entry: Error (invalid).
  std::string to_json() const;
  static Program from_json(std::string_view text);

 private:
  std::string name_;
  std::vector<std::vector<int>> groups_;
  std::vector<Op> ops_;
  std::vector<Output> outputs_;
  Precision matmul_precision_ = Precision::exact;
};

// ---- Computation. Each rank works on what it holds; a replicated operand beside a sharded one is cut to match.

// Element-wise with NumPy's broadcasting; operands of one dtype. Shards must agree. Partial(sum) operands add to each
// other and scale by replicated ones; anything else on a Partial is refused: all_reduce it first.
Tensor pointwise(Function function, const std::vector<Tensor>& operands, Where where = Where::current());
// The operators take their left side with the line that wrote it.
struct Written {
  Tensor tensor;
  Where where;
  Written(Tensor t, Where w = Where::current()) : tensor(t), where(w) {}  // implicit, so that a + b reads as it should
};
Tensor operator+(Written a, Tensor b);
Tensor operator-(Written a, Tensor b);
Tensor operator*(Written a, Tensor b);
Tensor operator/(Written a, Tensor b);
Tensor operator*(Written a, double b);
Tensor operator+(Written a, double b);
Tensor gelu(Tensor x, Where where = Where::current());
Tensor silu(Tensor x, Where where = Where::current());
Tensor cast(Tensor x, DType dtype, Where where = Where::current());

// [..., m, k] x [..., k, n] -> [..., m, n], batch dimensions broadcast. Rows of `a`, columns of `b` or a batch
// dimension may be sharded; a contraction sharded alike on both sides gives Partial(sum). tf32 is for f32 alone;
// without a precision f32 takes the program's.
Tensor matmul(Tensor a, Tensor b, Where where = Where::current());
Tensor matmul(Tensor a, Tensor b, Precision precision, Where where = Where::current());
// The product of e4m3 matrices, each given a scale of its own before it was rounded: (a b^T) * scale_a * scale_b, sums
// and scaling in fp32, rounded once to `out`: f32, bf16 or f16. a: [m, k]; b: [n, k], given transposed, so that k lies
// along its rows as it does along a's, which is how tensor cores read 8-bit elements. Scales are f32: scale_a [1, 1]
// for the whole matrix or [m, 1] for each row; scale_b [1, 1] or [1, n]. Placements as for matmul. Scales are
// replicated; a row-wise one may also be sharded as the product is.
Tensor scaled_matmul(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, DType out, Where where = Where::current());
// Over the last dimension, which must not be sharded.
Tensor softmax(Tensor x, Where where = Where::current());
// (x - mean) / sqrt(variance + epsilon) * gamma + beta, over the last dimension; gamma, beta: [last], replicated.
Tensor layer_norm(Tensor x, Tensor gamma, Tensor beta, double epsilon = 1e-5, Where where = Where::current());
// x / sqrt(mean(x^2) + epsilon) * gamma.
Tensor rms_norm(Tensor x, Tensor gamma, double epsilon = 1e-6, Where where = Where::current());
// sum, max, min or mean along one dimension. Along the sharded one: Partial (not for mean).
Tensor reduce_dim(Tensor x, ReduceOp op, int dim, bool keep_dim = false, Where where = Where::current());
// Same elements in row-major order. A sharded dimension may be split or joined where every member's part stays whole.
Tensor reshape(Tensor x, Shape shape, Where where = Where::current());
// Dimension i of the result is dimension permutation[i] of x.
Tensor transpose(Tensor x, Shape permutation, Where where = Where::current());
// Elements [start, start + extent) of a dimension that is not sharded.
Tensor slice(Tensor x, int dim, std::int64_t start, std::int64_t extent, Where where = Where::current());
// Rows of table [r, d] at indices (i32 or i64, any shape) -> indices.shape + [d]. A table sharded by rows gives
// Partial(sum). An index outside [0, r) is an error when it runs.
Tensor gather_rows(Tensor table, Tensor indices, Where where = Where::current());
// table [r, d] with indices [b, l] -> [b, d], or tables [t, r, d] with [t, b, l] -> [t, b, d]: the sum or mean of l
// rows.
Tensor embedding_bag(Tensor table, Tensor indices, ReduceOp op = ReduceOp::sum, Where where = Where::current());
// Replicate -> Shard: each rank keeps its part; nothing is sent.
Tensor shard(Tensor x, int dim, std::vector<std::int64_t> sizes = {}, Where where = Where::current());
// Stores `value` into the input `state` (same type) once everything that reads it has done so. Later operations must
// use the result; the next run reads what was stored.
Tensor update(Tensor state, Tensor value, Where where = Where::current());

// ---- Communication, over the group of the tensor.

Tensor all_reduce(Tensor x, Where where = Where::current());  // Partial -> Replicate
Tensor reduce_scatter(Tensor x, int dim, std::vector<std::int64_t> sizes = {},
                      Where where = Where::current());        // Partial -> Shard
Tensor all_gather(Tensor x, Where where = Where::current());  // Shard -> Replicate
Tensor all_to_all(Tensor x, int dim, std::vector<std::int64_t> sizes = {},
                  Where where = Where::current());  // Shard -> Shard(dim)
// Rows sent by splits that are known only when it runs. x: [rows, ...] Shard(0); splits: i32 or i64 [n, n] Shard(0, all
// ones), entry (r, q) the rows that member r sends to member q, taken from the front of r's part in order of q. Each
// member receives into `rows` rows: what arrived, in rank order, then zeros. Result: [n * rows, ...] Shard(0, all
// `rows`). Splits that are negative or exceed what is there or what fits are an error when it runs.
Tensor all_to_all_v(Tensor x, Tensor splits, std::int64_t rows, Where where = Where::current());
// x lives on member `root` alone: Shard(0) with every row there -> Replicate.
Tensor broadcast(Tensor x, int root, Where where = Where::current());
// Partial -> all rows on member `root`: Shard(0, [0, .., rows, .., 0]).
Tensor reduce(Tensor x, int root, Where where = Where::current());
// Member i of x's group sends what it holds to member i of another group of the same size.
Tensor send(Tensor x, int group, Where where = Where::current());

}  // namespace tileway
