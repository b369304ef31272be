// Combining elements: along a dimension, and over the ranks' partials.
#include <algorithm>
#include <limits>

#include "exec/host/kernels/all.hpp"
#include "exec/host/kernels/rows.hpp"

namespace tileway::host {
namespace {

template <typename W>
W identity(ReduceOp op) {
  using Limits = std::numeric_limits<W>;
  if (op == ReduceOp::max) return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  if (op == ReduceOp::min) return Limits::has_infinity ? Limits::infinity() : Limits::max();
  return W{0};
}

// A NaN on either side stays.
template <typename W>
W combine(ReduceOp op, W a, W b) {
  if (op == ReduceOp::max) return a != a || a > b ? a : b;
  if (op == ReduceOp::min) return a != a || a < b ? a : b;
  return a + b;
}

}  // namespace

void reduce_dim(const Arguments& arguments) {
  const View& from = arguments.reads[0];
  View to = arguments.writes[0];
  if (volume(to.extent) == 0) return;
  const auto dim = static_cast<std::size_t>(arguments.body.dim);
  const std::int64_t count = from.extent[dim];
  // The write with the reduced dimension put back, and the read at its first element: then both walk alike.
  if (to.extent.size() < from.extent.size()) {
    Dims extent;
    Dims strides;
    for (std::size_t d = 0; d < from.extent.size(); ++d) {
      const std::size_t e = d < dim ? d : d - 1;
      extent.push_back(d == dim ? 1 : to.extent[e]);
      strides.push_back(d == dim ? 0 : to.strides[e]);
    }
    to.extent = extent;
    to.strides = strides;
  }
  View first = from;
  first.extent[dim] = 1;
  const bool along_rows = dim + 1 == from.extent.size();
  const std::int64_t step = from.strides[dim];
  const std::int64_t length = along_rows ? 1 : row_length(to);
  const ReduceOp op = arguments.body.op;
  with_elements(from, [&]<typename T>(T) {
    using W = Wide<T>;
    for (RowWalk<2> walk(to.extent, {&first, &to}); !walk.done(); walk.next()) {
      const T* in = at<T>(from, walk.offset(0));
      T* out = at<T>(to, walk.offset(1));
      for (std::int64_t i = 0; i < length; ++i) {
        W total = identity<W>(op);
        for (std::int64_t k = 0; k < count; ++k) total = combine(op, total, static_cast<W>(in[i + k * step]));
        if constexpr (std::is_floating_point_v<W>) {
          if (op == ReduceOp::mean) total /= static_cast<W>(count);
        }
        out[i] = static_cast<T>(total);
      }
    }
  });
}

// Reads may be packed: they are walked in row-major order, beside the rows of the write.
void reduce_ranks(const Arguments& arguments) {
  const View& to = arguments.writes[0];
  if (volume(to.extent) == 0) return;
  const ReduceOp op = arguments.body.op;
  const std::int64_t length = row_length(to);
  with_elements(to, [&]<typename T>(T) {
    using W = Wide<T>;
    struct Source {
      const View* view;
      RowWalk<1> walk;
      std::int64_t taken;
    };
    std::vector<Source> sources;
    for (const View& read : arguments.reads) sources.push_back({&read, RowWalk<1>(read.extent, {&read}), 0});
    std::vector<RowWalk<1>> results;
    for (const View& write : arguments.writes) results.emplace_back(write.extent, std::array{&write});
    std::vector<W> totals(static_cast<std::size_t>(length));
    while (!results[0].done()) {
      for (std::size_t s = 0; s < sources.size(); ++s) {
        Source& source = sources[s];
        for (std::int64_t done = 0; done < length;) {
          const std::int64_t count = std::min(length - done, row_length(*source.view) - source.taken);
          const T* in = at<T>(*source.view, source.walk.offset(0)) + source.taken;
          for (std::int64_t i = 0; i < count; ++i) {
            const W value = static_cast<W>(in[i]);
            totals[done + i] = s == 0 ? value : combine(op, totals[done + i], value);
          }
          done += count;
          source.taken += count;
          if (source.taken == row_length(*source.view)) {
            source.walk.next();
            source.taken = 0;
          }
        }
      }
      for (std::size_t w = 0; w < arguments.writes.size(); ++w) {
        T* out = at<T>(arguments.writes[w], results[w].offset(0));
        results[w].next();
        for (std::int64_t i = 0; i < length; ++i) out[i] = static_cast<T>(totals[i]);
      }
    }
  });
}

}  // namespace tileway::host
