// The file format of programs. Loading goes through Program::append, so a file obeys the rules that a builder obeys.
#include "base/json.hpp"
#include "tileway/error.hpp"
#include "tileway/program.hpp"

namespace tileway {
namespace {

using json::Reader;
using json::Value;

constexpr int kFormat = 1;
constexpr std::int64_t kMaxOps = 100000;

Value placement_to_json(const Placement& placement) {
  if (placement.is_replicate()) return "replicate";
  if (placement.is_partial()) return {{"partial", name_of(placement.op)}};
  return {{"shard", placement.dim}, {"sizes", placement.sizes}};
}

Placement placement_from_json(const Reader& reader) {
  if (reader.has("partial")) {
    reader.only({"partial"});
    return Partial(reader.at("partial").name(parse_reduce_op));
  }
  if (reader.has("shard")) {
    reader.only({"shard", "sizes"});
    std::vector<std::int64_t> sizes;
    if (reader.has("sizes")) sizes = reader.at("sizes").integers();
    return Shard(static_cast<int>(reader.at("shard").integer(0, kMaxDims)), std::move(sizes));
  }
  if (reader.text() != "replicate")
    reader.refuse("\"replicate\", {\"shard\": dim, \"sizes\": [..]} or {\"partial\": op}");
  return Replicate();
}

// Only what the kind uses; see struct Op.
Value op_to_json(const Op& op) {
  Value out{{"op", name_of(op.kind)}};
  if (!op.operands.empty()) out["operands"] = op.operands;
  switch (op.kind) {
    case OpKind::input:
      out["name"] = op.name;
      out["dtype"] = name_of(op.dtype);
      out["shape"] = json::from(op.shape);
      out["placement"] = placement_to_json(op.type.placement);
      out["group"] = op.group;
      break;
    case OpKind::constant:
      out["value"] = op.value;
      if (op.value - op.value != 0) out["value"] = op.value > 0 ? "inf" : "-inf";
      out["dtype"] = name_of(op.dtype);
      out["group"] = op.group;
      break;
    case OpKind::pointwise:
      out["function"] = name_of(op.function);
      break;
    case OpKind::cast:
    case OpKind::scaled_matmul:
      out["dtype"] = name_of(op.dtype);
      break;
    case OpKind::matmul:
      if (op.precision != Precision::exact) out["precision"] = name_of(op.precision);
      break;
    case OpKind::layer_norm:
    case OpKind::rms_norm:
      out["epsilon"] = op.value;
      break;
    case OpKind::reduce_dim:
      out["reduce"] = name_of(op.reduce);
      out["dim"] = op.dim;
      out["keep_dim"] = op.keep_dim;
      break;
    case OpKind::embedding_bag:
      out["reduce"] = name_of(op.reduce);
      break;
    case OpKind::reshape:
    case OpKind::transpose:
      out["shape"] = json::from(op.shape);
      break;
    case OpKind::slice:
      out["dim"] = op.dim;
      out["start"] = op.start;
      out["extent"] = op.extent;
      break;
    case OpKind::shard:
    case OpKind::reduce_scatter:
    case OpKind::all_to_all:
      out["placement"] = placement_to_json(op.type.placement);
      break;
    case OpKind::all_to_all_v:
      out["extent"] = op.extent;
      break;
    case OpKind::broadcast:
    case OpKind::reduce:
      out["dim"] = op.dim;
      break;
    case OpKind::send:
      out["group"] = op.group;
      break;
    default:
      break;
  }
  return out;
}

Op op_from_json(const Reader& reader) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 40;
  reader.only({"op", "operands", "name", "dtype", "shape", "placement", "group", "value", "function", "epsilon",
               "reduce", "dim", "keep_dim", "start", "extent", "precision"});
  Op op{.kind = reader.at("op").name(parse_op_kind)};
  op.where = reader.path();
  if (reader.has("operands")) {
    for (const Reader& item : reader.at("operands").items())
      op.operands.push_back(static_cast<int>(item.integer(0, kMaxOps)));
  }
  if (reader.has("name")) op.name = reader.at("name").text();
  if (reader.has("dtype")) op.dtype = reader.at("dtype").name(parse_dtype);
  if (reader.has("shape")) op.shape = reader.at("shape").dims();
  if (reader.has("placement")) op.placement = placement_from_json(reader.at("placement"));
  if (reader.has("group")) op.group = static_cast<int>(reader.at("group").integer(0, kMaxOps));
  if (reader.has("value")) op.value = reader.at("value").number();
  if (reader.has("epsilon")) op.value = reader.at("epsilon").number();
  if (reader.has("function")) op.function = reader.at("function").name(parse_function);
  if (reader.has("reduce")) op.reduce = reader.at("reduce").name(parse_reduce_op);
  if (reader.has("dim")) op.dim = static_cast<int>(reader.at("dim").integer(0, kMaxOps));
  if (reader.has("keep_dim")) op.keep_dim = reader.at("keep_dim").boolean();
  if (reader.has("precision")) op.precision = reader.at("precision").name(parse_precision);
  if (reader.has("start")) op.start = reader.at("start").integer(0, kLimit);
  if (reader.has("extent")) op.extent = reader.at("extent").integer(0, kLimit);
  return op;
}

}  // namespace

std::string Program::to_json() const {
  Value out{{"tileway_program", kFormat}, {"name", name_}, {"world", world()}};
  out["groups"] = Value::array();
  for (std::size_t g = 1; g < groups_.size(); ++g) out["groups"].push_back(groups_[g]);
  std::string text = out.dump(1, ' ', true);
  // One operation a line, so that files diff.
  text.resize(text.rfind('}') - 1);
  text += ",\n \"ops\": [";
  for (std::size_t i = 0; i < ops_.size(); ++i)
    text += (i ? ",\n  " : "\n  ") + op_to_json(ops_[i]).dump(-1, ' ', true);
  text += "\n ],\n \"outputs\": [";
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const Value output{{"name", outputs_[i].name}, {"op", outputs_[i].op}};
    text += (i ? ",\n  " : "\n  ") + output.dump(-1, ' ', true);
  }
  return text + "\n ]\n}\n";
}

Program Program::from_json(std::string_view text) {
  const Value value = json::parse(text, "program");
  const Reader reader(value, "program");
  reader.only({"tileway_program", "name", "world", "groups", "ops", "outputs"});
  reader.at("tileway_program").integer(kFormat, kFormat);
  Program program(reader.at("name").text(), static_cast<int>(reader.at("world").integer(1, 4096)));
  for (const Reader& item : reader.at("groups").items()) {
    std::vector<int> ranks;
    for (const Reader& rank : item.items()) ranks.push_back(static_cast<int>(rank.integer(0, program.world() - 1)));
    program.group(std::move(ranks));
  }
  const std::vector<Reader> ops = reader.at("ops").items();
  if (static_cast<std::int64_t>(ops.size()) > kMaxOps)
    reader.refuse("at most " + std::to_string(kMaxOps) + " operations");
  for (const Reader& item : ops) program.append(op_from_json(item));
  for (const Reader& item : reader.at("outputs").items()) {
    item.only({"name", "op"});
    const auto op = item.at("op").integer(0, static_cast<std::int64_t>(ops.size()) - 1);
    program.output(item.at("name").text(), Tensor(&program, static_cast<int>(op)));
  }
  return program;
}

}  // namespace tileway
