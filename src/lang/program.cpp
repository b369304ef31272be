#include "tileway/program.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "lang/infer.hpp"
#include "tileway/error.hpp"

namespace tileway {
namespace {

constexpr std::array<std::string_view, kOpKindCount> kOpNames{
    "input",         "constant",  "pointwise",  "cast",       "matmul",         "scaled_matmul", "softmax",
    "layer_norm",    "rms_norm",  "reduce_dim", "reshape",    "transpose",      "slice",         "gather_rows",
    "embedding_bag", "shard",     "update",     "all_reduce", "reduce_scatter", "all_gather",    "all_to_all",
    "all_to_all_v",  "broadcast", "reduce",     "send"};
constexpr std::array<std::string_view, kPrecisionCount> kPrecisionNames{"exact", "tf32"};

std::string place(const Where& where) {
  const std::string_view file = where.file_name();
  return std::string(file.substr(file.find_last_of('/') + 1)) + ":" + std::to_string(where.line());
}

bool valid_name(std::string_view name) { return !name.empty() && name.size() <= 256 && name.find('\n') == name.npos; }

}  // namespace

std::string_view name_of(OpKind kind) { return kOpNames[static_cast<std::size_t>(kind)]; }

OpKind parse_op_kind(std::string_view text) {
  const auto* found = std::find(kOpNames.begin(), kOpNames.end(), text);
  TW_REQUIRE(found != kOpNames.end(), ErrorKind::invalid, .where = "operation", .what = "unknown name",
             .got = std::string(text));
  return static_cast<OpKind>(found - kOpNames.begin());
}

std::string_view name_of(Precision precision) { return kPrecisionNames[static_cast<std::size_t>(precision)]; }

Precision parse_precision(std::string_view text) {
  const auto* found = std::find(kPrecisionNames.begin(), kPrecisionNames.end(), text);
  TW_REQUIRE(found != kPrecisionNames.end(), ErrorKind::invalid, .where = "precision", .what = "unknown name",
             .expected = "exact or tf32", .got = std::string(text));
  return static_cast<Precision>(found - kPrecisionNames.begin());
}

bool is_communication(OpKind kind) { return kind >= OpKind::all_reduce; }

const TensorType& Tensor::type() const { return program_->ops()[index_].type; }

Program::Program(std::string name, int world) : name_(std::move(name)) {
  TW_REQUIRE(world >= 1 && world <= 4096, ErrorKind::invalid, .where = "program '" + name_ + "'",
             .what = "impossible number of ranks", .expected = "1 to 4096", .got = std::to_string(world));
  TW_REQUIRE(valid_name(name_), ErrorKind::invalid, .where = "program", .what = "an empty or overlong name");
  groups_.emplace_back(world);
  std::iota(groups_[0].begin(), groups_[0].end(), 0);
}

int Program::group(std::vector<int> ranks, Where where) {
  const bool ascending = std::adjacent_find(ranks.begin(), ranks.end(), std::greater_equal<>()) == ranks.end();
  TW_REQUIRE(!ranks.empty() && ascending && ranks.front() >= 0 && ranks.back() < world(), ErrorKind::invalid,
             .where = "group at " + place(where), .what = "not a group of this program",
             .expected = "ascending ranks from 0 to " + std::to_string(world() - 1));
  const auto found = std::find(groups_.begin(), groups_.end(), ranks);
  if (found != groups_.end()) return static_cast<int>(found - groups_.begin());
  groups_.push_back(std::move(ranks));
  return static_cast<int>(groups_.size()) - 1;
}

Tensor Program::input(std::string name, DType dtype, Shape shape, Placement placement, int group, Where where) {
  Op op{.kind = OpKind::input};
  op.name = std::move(name);
  op.dtype = dtype;
  op.shape = shape;
  op.placement = std::move(placement);
  op.group = group;
  op.where = place(where);
  return append(std::move(op));
}

Tensor Program::constant(double value, DType dtype, int group, Where where) {
  Op op{.kind = OpKind::constant};
  op.value = value;
  op.dtype = dtype;
  op.group = group;
  op.where = place(where);
  return append(std::move(op));
}

void Program::output(std::string name, Tensor value, Where where) {
  TW_REQUIRE(value.index() >= 0 && value.index() < static_cast<int>(ops_.size()), ErrorKind::invalid,
             .where = "output '" + name + "' at " + place(where), .what = "a value that does not exist");
  TW_REQUIRE(valid_name(name), ErrorKind::invalid, .where = "output at " + place(where),
             .what = "an empty or overlong name");
  for (const Output& output : outputs_) {
    TW_REQUIRE(output.name != name, ErrorKind::invalid, .where = "output '" + name + "' at " + place(where),
               .what = "the name is taken");
  }
  TW_REQUIRE(updated_by(value.index()) < 0, ErrorKind::invalid, .where = "output '" + name + "' at " + place(where),
             .what = "the value has been updated in place", .hint = "Use what update returned");
  outputs_.push_back({std::move(name), value.index()});
}

int Program::member(int group, int rank) const {
  const std::vector<int>& ranks = groups_[group];
  const auto found = std::lower_bound(ranks.begin(), ranks.end(), rank);
  return found != ranks.end() && *found == rank ? static_cast<int>(found - ranks.begin()) : -1;
}

int Program::updated_by(int op) const {
  for (std::size_t i = ops_.size(); i-- > 0;) {
    if (ops_[i].kind == OpKind::update && ops_[i].operands[0] == op) return static_cast<int>(i);
  }
  return -1;
}

Tensor Program::append(Op op) {
  const std::string where = std::string(name_of(op.kind)) + " '" + op.name + "' at " + op.where;
  if (op.kind == OpKind::input) {
    TW_REQUIRE(valid_name(op.name), ErrorKind::invalid, .where = where, .what = "an empty or overlong name");
    for (const Op& other : ops_) {
      TW_REQUIRE(other.kind != OpKind::input || other.name != op.name, ErrorKind::invalid, .where = where,
                 .what = "the name is taken");
    }
  }
  op.type = infer(*this, op);
  checked_volume(op.type.shape, where);
  if (op.kind == OpKind::update) {
    for (const Output& output : outputs_) {
      TW_REQUIRE(output.op != op.operands[0], ErrorKind::invalid, .where = where,
                 .what = "output '" + output.name + "' is the state before the update",
                 .hint = "Output what update returns");
    }
  }
  ops_.push_back(std::move(op));
  return Tensor(this, static_cast<int>(ops_.size()) - 1);
}

namespace {

Op make(OpKind kind, const std::vector<Tensor>& operands, const Where& where) {
  Op op{.kind = kind};
  for (const Tensor& operand : operands) {
    TW_REQUIRE(&operand.program() == &operands[0].program(), ErrorKind::invalid,
               .where = std::string(name_of(kind)) + " at " + place(where), .what = "operands of different programs");
    op.operands.push_back(operand.index());
  }
  op.where = place(where);
  return op;
}

Tensor add(OpKind kind, const std::vector<Tensor>& operands, const Where& where) {
  return operands[0].program().append(make(kind, operands, where));
}

Tensor scaled_by(Function function, const Written& a, double b) {
  const Tensor scalar = a.tensor.program().constant(b, a.tensor.dtype(), a.tensor.type().group, a.where);
  return pointwise(function, {a.tensor, scalar}, a.where);
}

Tensor toward(OpKind kind, Tensor x, int dim, std::vector<std::int64_t> sizes, const Where& where) {
  Op op = make(kind, {x}, where);
  op.placement = Shard(dim, std::move(sizes));
  return x.program().append(std::move(op));
}

Tensor rooted(OpKind kind, Tensor x, int root, const Where& where) {
  Op op = make(kind, {x}, where);
  op.dim = root;
  return x.program().append(std::move(op));
}

Tensor normalised(OpKind kind, const std::vector<Tensor>& operands, double epsilon, const Where& where) {
  Op op = make(kind, operands, where);
  op.value = epsilon;
  return operands[0].program().append(std::move(op));
}

}  // namespace

Tensor pointwise(Function function, const std::vector<Tensor>& operands, Where where) {
  TW_REQUIRE(!operands.empty(), ErrorKind::invalid, .where = std::string(name_of(function)) + " at " + place(where),
             .what = "no operands");
  Op op = make(OpKind::pointwise, operands, where);
  op.function = function;
  return operands[0].program().append(std::move(op));
}

Tensor operator+(Written a, Tensor b) { return pointwise(Function::add, {a.tensor, b}, a.where); }
Tensor operator-(Written a, Tensor b) { return pointwise(Function::sub, {a.tensor, b}, a.where); }
Tensor operator*(Written a, Tensor b) { return pointwise(Function::mul, {a.tensor, b}, a.where); }
Tensor operator/(Written a, Tensor b) { return pointwise(Function::div, {a.tensor, b}, a.where); }
Tensor operator*(Written a, double b) { return scaled_by(Function::mul, a, b); }
Tensor operator+(Written a, double b) { return scaled_by(Function::add, a, b); }
Tensor gelu(Tensor x, Where where) { return pointwise(Function::gelu, {x}, where); }
Tensor silu(Tensor x, Where where) { return pointwise(Function::silu, {x}, where); }

Tensor cast(Tensor x, DType dtype, Where where) {
  Op op = make(OpKind::cast, {x}, where);
  op.dtype = dtype;
  return x.program().append(std::move(op));
}

Tensor matmul(Tensor a, Tensor b, Precision precision, Where where) {
  Op op = make(OpKind::matmul, {a, b}, where);
  op.precision = precision;
  return a.program().append(std::move(op));
}

Tensor matmul(Tensor a, Tensor b, Where where) {
  return matmul(a, b, a.dtype() == DType::f32 ? a.program().matmul_precision() : Precision::exact, where);
}

Tensor scaled_matmul(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, DType out, Where where) {
  Op op = make(OpKind::scaled_matmul, {a, b, scale_a, scale_b}, where);
  op.dtype = out;
  return a.program().append(std::move(op));
}

Tensor softmax(Tensor x, Where where) { return add(OpKind::softmax, {x}, where); }

Tensor layer_norm(Tensor x, Tensor gamma, Tensor beta, double epsilon, Where where) {
  return normalised(OpKind::layer_norm, {x, gamma, beta}, epsilon, where);
}

Tensor rms_norm(Tensor x, Tensor gamma, double epsilon, Where where) {
  return normalised(OpKind::rms_norm, {x, gamma}, epsilon, where);
}

Tensor reduce_dim(Tensor x, ReduceOp reduce, int dim, bool keep_dim, Where where) {
  Op op = make(OpKind::reduce_dim, {x}, where);
  op.reduce = reduce;
  op.dim = dim;
  op.keep_dim = keep_dim;
  return x.program().append(std::move(op));
}

Tensor reshape(Tensor x, Shape shape, Where where) {
  Op op = make(OpKind::reshape, {x}, where);
  op.shape = shape;
  return x.program().append(std::move(op));
}

Tensor transpose(Tensor x, Shape permutation, Where where) {
  Op op = make(OpKind::transpose, {x}, where);
  op.shape = permutation;
  return x.program().append(std::move(op));
}

Tensor slice(Tensor x, int dim, std::int64_t start, std::int64_t extent, Where where) {
  Op op = make(OpKind::slice, {x}, where);
  op.dim = dim;
  op.start = start;
  op.extent = extent;
  return x.program().append(std::move(op));
}

Tensor gather_rows(Tensor table, Tensor indices, Where where) {
  return add(OpKind::gather_rows, {table, indices}, where);
}

Tensor embedding_bag(Tensor table, Tensor indices, ReduceOp reduce, Where where) {
  Op op = make(OpKind::embedding_bag, {table, indices}, where);
  op.reduce = reduce;
  return table.program().append(std::move(op));
}

Tensor shard(Tensor x, int dim, std::vector<std::int64_t> sizes, Where where) {
  return toward(OpKind::shard, x, dim, std::move(sizes), where);
}

Tensor update(Tensor state, Tensor value, Where where) { return add(OpKind::update, {state, value}, where); }
Tensor all_reduce(Tensor x, Where where) { return add(OpKind::all_reduce, {x}, where); }

Tensor reduce_scatter(Tensor x, int dim, std::vector<std::int64_t> sizes, Where where) {
  return toward(OpKind::reduce_scatter, x, dim, std::move(sizes), where);
}

Tensor all_gather(Tensor x, Where where) { return add(OpKind::all_gather, {x}, where); }

Tensor all_to_all(Tensor x, int dim, std::vector<std::int64_t> sizes, Where where) {
  return toward(OpKind::all_to_all, x, dim, std::move(sizes), where);
}

Tensor all_to_all_v(Tensor x, Tensor splits, std::int64_t rows, Where where) {
  Op op = make(OpKind::all_to_all_v, {x, splits}, where);
  op.extent = rows;
  return x.program().append(std::move(op));
}

Tensor broadcast(Tensor x, int root, Where where) { return rooted(OpKind::broadcast, x, root, where); }
Tensor reduce(Tensor x, int root, Where where) { return rooted(OpKind::reduce, x, root, where); }

Tensor send(Tensor x, int group, Where where) {
  Op op = make(OpKind::send, {x}, where);
  op.group = group;
  return x.program().append(std::move(op));
}

}  // namespace tileway
