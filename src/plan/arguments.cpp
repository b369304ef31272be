// Which boxes each body can work on; a kernel relies on it and does not look again.
#include <fmt/format.h>

#include <algorithm>

#include "plan/check.hpp"
#include "plan/joint.hpp"
#include "tileway/error.hpp"

namespace tileway {
namespace {

struct Arguments {
  const Body& body;
  std::vector<Dims> reads;
  std::vector<DType> read_types;
  std::vector<Dims> writes;
  std::vector<DType> write_types;

  bool counts(std::size_t read, std::size_t written) const { return reads.size() == read && writes.size() == written; }
  bool one_type() const {
    const auto first = [&](DType type) { return type == write_types[0]; };
    return std::all_of(read_types.begin(), read_types.end(), first) &&
           std::all_of(write_types.begin(), write_types.end(), first);
  }
};

// `from` broadcasts to `to`: dimensions align at the last, extents are equal or 1.
bool broadcasts(const Dims& from, const Dims& to, std::size_t but_last = 0) {
  if (from.size() > to.size() || from.size() < but_last) return false;
  const std::size_t shift = to.size() - from.size();
  for (std::size_t d = 0; d + but_last < from.size(); ++d) {
    if (from[d] != 1 && from[d] != to[d + shift]) return false;
  }
  return true;
}

bool fits_matmul(const Arguments& a) {
  const Dims& x = a.reads[0];
  const Dims& y = a.reads[1];
  const Dims& out = a.writes[0];
  return x.size() >= 2 && y.size() >= 2 && out.size() == std::max(x.size(), y.size()) && x.back() == y[y.size() - 2] &&
         x[x.size() - 2] == out[out.size() - 2] && y.back() == out.back() && broadcasts(x, out, 2) &&
         broadcasts(y, out, 2);
}

bool fits_scaled_matmul(const Arguments& a) {
  const bool matrices = std::all_of(a.reads.begin(), a.reads.end(), [](const Dims& read) { return read.size() == 2; });
  if (!matrices || a.writes[0].size() != 2 || a.reads[0][1] != a.reads[1][1]) return false;
  const bool types = a.read_types[0] == DType::e4m3 && a.read_types[1] == DType::e4m3 &&
                     a.read_types[2] == DType::f32 && a.read_types[3] == DType::f32 && is_floating(a.write_types[0]) &&
                     a.write_types[0] != DType::e4m3;
  const auto scales = [](std::int64_t extent, std::int64_t along) { return extent == 1 || extent == along; };
  const Dims& out = a.writes[0];
  return types && out == Dims{a.reads[0][0], a.reads[1][0]} && scales(a.reads[2][0], out[0]) && a.reads[2][1] == 1 &&
         a.reads[3][0] == 1 && scales(a.reads[3][1], out[1]);
}

// Its reads come in order, each once, behind the product's two; every step's operands are of its dtype, and the last
// one's result is what is written.
bool fits_epilogue(const Arguments& a) {
  if (a.body.epilogue.size() > kMostSteps || (!a.body.epilogue.empty() && a.writes[0].size() != 2)) return false;
  DType so_far = a.read_types[0];
  std::size_t next = 2;
  for (const Step& step : a.body.epilogue) {
    const std::size_t count = step.cast ? 1 : static_cast<std::size_t>(operand_count(step.function));
    if (!is_floating(step.dtype) || step.dtype == DType::e4m3 || step.dtype == DType::f64) return false;
    for (std::size_t i = 0; i < step.operands.size(); ++i) {
      if (i >= count) {
        if (step.operands[i] != Step::kNone) return false;
      } else if (step.operands[i] == Step::kSoFar) {
        if (!step.cast && so_far != step.dtype) return false;
      } else {
        if (step.cast || step.operands[i] != static_cast<std::int32_t>(next) || next >= a.reads.size()) return false;
        if (a.read_types[next] != step.dtype || !broadcasts(a.reads[next], a.writes[0])) return false;
        ++next;
      }
    }
    so_far = step.dtype;
  }
  return next == a.reads.size() && so_far == a.write_types[0] && size_of(so_far) >= size_of(a.read_types[0]);
}

bool fits_rows(const Arguments& a, std::size_t weights) {
  if (a.writes[0].empty() || a.reads[0] != a.writes[0]) return false;
  for (std::size_t i = 1; i <= weights; ++i) {
    if (a.reads[i] != Dims{a.writes[0].back()}) return false;
  }
  return is_floating(a.write_types[0]);
}

bool fits_reduce_dim(const Arguments& a) {
  const std::int32_t dim = a.body.dim;
  if (dim < 0 || dim >= static_cast<std::int32_t>(a.reads[0].size())) return false;
  Dims kept = a.reads[0];
  kept[dim] = 1;
  Dims dropped = a.reads[0];
  dropped.erase(dim);
  return a.writes[0] == kept || a.writes[0] == dropped;
}

bool fits_transpose(const Arguments& a) {
  const Dims& order = a.body.dims;
  if (order.size() != a.reads[0].size() || order.size() != a.writes[0].size()) return false;
  std::uint32_t seen = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] < 0 || order[i] >= static_cast<std::int64_t>(order.size()) || (seen >> order[i] & 1U) != 0)
      return false;
    seen |= 1U << order[i];
    if (a.writes[0][i] != a.reads[0][order[i]]) return false;
  }
  return true;
}

bool fits_lookup(const Arguments& a, bool bag) {
  const Dims& table = a.reads[0];
  const Dims& indices = a.reads[1];
  if (is_floating(a.read_types[1]) || a.read_types[0] != a.write_types[0] || a.body.first < 0) return false;
  Dims expected = indices;
  if (bag) {
    if (table.size() != indices.size() || (table.size() != 2 && table.size() != 3)) return false;
    if (table.size() == 3 && table[0] != indices[0]) return false;
    expected.back() = table.back();
    return a.writes[0] == expected && (a.body.op == ReduceOp::sum || a.body.op == ReduceOp::mean);
  }
  if (table.size() != 2 || indices.size() == kMaxDims) return false;
  expected.push_back(table[1]);
  return a.writes[0] == expected;
}

bool fits_dynamic(const Arguments& a, bool copies) {
  const Dims& splits = a.reads[0];
  const auto members = static_cast<std::int32_t>(splits.size() == 2 ? splits[0] : 0);
  if (is_floating(a.read_types[0]) || splits != Dims{members, members}) return false;
  if (a.body.to < 0 || a.body.to >= members || a.body.from < 0 || a.body.from >= members || a.writes[0].empty())
    return false;
  if (!copies) return true;
  if (a.reads[1].size() != a.writes[0].size() || a.read_types[1] != a.write_types[0]) return false;
  return std::equal(a.reads[1].begin() + 1, a.reads[1].end(), a.writes[0].begin() + 1);
}

// Whether it adds, multiplies or compares elements of the type that it writes.
bool computes(Body::Kind kind) {
  switch (kind) {
    case Body::Kind::pointwise:
    case Body::Kind::matmul:
    case Body::Kind::softmax:
    case Body::Kind::layer_norm:
    case Body::Kind::rms_norm:
    case Body::Kind::reduce_dim:
    case Body::Kind::embedding_bag:
    case Body::Kind::reduce_ranks:
    case Body::Kind::all_reduce:
      return true;
    default:
      return false;
  }
}

bool fits(const Arguments& a) {
  if ((a.body.tf32 || !a.body.epilogue.empty()) && a.body.kind != Body::Kind::matmul) return false;
  if (computes(a.body.kind) && !a.write_types.empty() && a.write_types[0] == DType::e4m3) return false;
  switch (a.body.kind) {
    case Body::Kind::none:
      return a.counts(0, 0);
    case Body::Kind::copy:
      return a.counts(1, 1) && a.one_type() && volume(a.reads[0]) == volume(a.writes[0]);
    case Body::Kind::cast:
      return a.counts(1, 1) && a.reads[0] == a.writes[0];
    case Body::Kind::pointwise:
      return a.counts(static_cast<std::size_t>(operand_count(a.body.function)), 1) && a.one_type() &&
             (is_floating(a.write_types[0]) || defined_on_integers(a.body.function)) &&
             std::all_of(a.reads.begin(), a.reads.end(),
                         [&](const Dims& read) { return broadcasts(read, a.writes[0]); });
    case Body::Kind::matmul:
      return a.reads.size() >= 2 && a.writes.size() == 1 && a.read_types[0] == a.read_types[1] &&
             is_floating(a.read_types[0]) && a.read_types[0] != DType::e4m3 &&
             (!a.body.tf32 || a.read_types[0] == DType::f32) && fits_matmul(a) && fits_epilogue(a);
    case Body::Kind::scaled_matmul:
      return a.counts(4, 1) && fits_scaled_matmul(a);
    case Body::Kind::softmax:
      return a.counts(1, 1) && a.one_type() && fits_rows(a, 0);
    case Body::Kind::layer_norm:
      return a.counts(3, 1) && a.one_type() && fits_rows(a, 2);
    case Body::Kind::rms_norm:
      return a.counts(2, 1) && a.one_type() && fits_rows(a, 1);
    case Body::Kind::reduce_dim:
      return a.counts(1, 1) && a.one_type() && fits_reduce_dim(a);
    case Body::Kind::transpose:
      return a.counts(1, 1) && a.one_type() && fits_transpose(a);
    case Body::Kind::gather_rows:
      return a.counts(2, 1) && fits_lookup(a, false);
    case Body::Kind::embedding_bag:
      return a.counts(2, 1) && fits_lookup(a, true);
    case Body::Kind::reduce_ranks:
      return !a.reads.empty() && !a.writes.empty() && a.one_type() && a.body.op != ReduceOp::mean &&
             std::all_of(a.reads.begin(), a.reads.end(),
                         [&](const Dims& read) { return volume(read) == volume(a.writes[0]); }) &&
             std::all_of(a.writes.begin(), a.writes.end(), [&](const Dims& write) { return write == a.writes[0]; });
    case Body::Kind::copy_rows:
      return a.counts(2, 1) && fits_dynamic(a, true);
    case Body::Kind::zero_rows:
      return a.counts(1, 1) && fits_dynamic(a, false);
    case Body::Kind::all_reduce:
      return a.counts(1, 1) && a.one_type() && a.reads[0] == a.writes[0] && a.body.op != ReduceOp::mean;
    case Body::Kind::reduce_scatter:
      return !a.reads.empty() && a.writes.size() == 1 && a.one_type() && a.body.op != ReduceOp::mean;
    case Body::Kind::exchange:
      return !a.writes.empty() && a.counts(a.writes.size(), a.writes.size()) && a.one_type() &&
             std::all_of(a.write_types.begin(), a.write_types.end(),
                         [&](DType type) { return type == a.write_types[0]; });
  }
  return false;
}

}  // namespace

void check_arguments(const Plan& plan, TaskId id) {
  const Task& task = plan.tasks[id];
  Arguments arguments{plan.bodies[task.body], {}, {}, {}, {}};
  for (const Access& read : task.reads) {
    arguments.reads.push_back(read.box.extent);
    arguments.read_types.push_back(plan.buffers[read.buffer].dtype);
  }
  for (const Access& write : task.writes) {
    arguments.writes.push_back(write.box.extent);
    arguments.write_types.push_back(plan.buffers[write.buffer].dtype);
  }
  if (fits(arguments)) {
    if (!is_joint(arguments.body.kind)) return;
    for (const auto* list : {&task.reads, &task.writes}) {
      for (const Access& access : *list) {
        const Shape& shape = plan.buffers[access.buffer].shape;
        TW_REQUIRE(contiguous(access.box, shape), ErrorKind::invalid, .where = "plan, " + task_name(plan, id),
                   .what = "a collective library takes contiguous memory",
                   .expected = "a box that cuts one dimension and takes all of those inside it",
                   .got = fmt::format("{} of {}", to_string(access.box), to_string(shape)));
      }
    }
    return;
  }
  std::string shapes;
  for (std::size_t i = 0; i < arguments.reads.size(); ++i) {
    shapes += fmt::format("{}{}{}", i ? ", " : "", name_of(arguments.read_types[i]), to_string(arguments.reads[i]));
  }
  shapes += " ->";
  for (std::size_t i = 0; i < arguments.writes.size(); ++i) {
    shapes += fmt::format(" {}{}", name_of(arguments.write_types[i]), to_string(arguments.writes[i]));
  }
  throw Error(ErrorKind::invalid,
              {.where = "plan, " + task_name(plan, id),
               .what = fmt::format("the arguments do not fit the body {}{}", name_of(arguments.body.kind),
                                   arguments.body.tf32 ? " tf32" : ""),
               .got = shapes});
}

}  // namespace tileway
