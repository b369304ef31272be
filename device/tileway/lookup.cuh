// Rows by index: gather_rows and embedding_bag.
#pragma once

#include "tileway/rows.cuh"

namespace tileway {

// The row of the table box that an index names, or -1 for a row that another rank holds. An index outside the table is
// recorded, by which the run fails, and counts as such a row.
__device__ inline i64 row_of(i64 index, const Arguments& arguments, i64 held) {
  if (index < 0 || index >= arguments.body.rows) {
    Failure what{};
    what.kind = Failure::index;
    what.value = index;
    report(arguments, what);
    return -1;
  }
  const i64 row = index - arguments.body.first;
  return row >= 0 && row < held ? row : -1;
}

// A warp an index.
template <typename T, typename Index>
__device__ inline void gather_rows(const Arguments& arguments) {
  const View& table = arguments.reads[0];
  const View& indices = arguments.reads[1];
  const View& to = arguments.writes[0];
  const i64 width = row_length(to);
  const i64 count = volume(indices);
  if (width == 0) return;
  for (i64 i = worker() / kWarp; i < count; i += kWorkers / kWarp) {
    const i64 row = row_of(*at<Index>(indices, offset_at(indices, static_cast<u32>(i))), arguments, table.extent[0]);
    T* out = at<T>(to, offset_at(to, static_cast<u32>(i * width)));
    const T* in = at<T>(table, row * table.stride[0]);
    for (i64 c = warp_lane(); c < width; c += kWarp) out[c] = row < 0 ? T{} : in[c];
  }
}

// A warp a bag, lanes along the row; rows are added in the order of the bag, eight in flight.
template <typename T, typename Index>
__device__ inline void embedding_bag(const Arguments& arguments) {
  using W = Wide<T>;
  constexpr i64 kFlight = 8;
  const View& table = arguments.reads[0];
  const View& indices = arguments.reads[1];
  const View& to = arguments.writes[0];
  const i64 width = row_length(to);
  const i64 pooling = row_length(indices);
  if (width == 0) return;
  const i64 bags = volume(to) / width;
  const u32 rows_at = table.dims - 2;
  const bool mean = arguments.body.op == 3 && pooling > 0;
  View first = indices;  // of each bag
  first.extent[first.dims - 1] = 1;
  for (i64 bag = worker() / kWarp; bag < bags; bag += kWorkers / kWarp) {
    const Index* list = at<Index>(indices, offset_at(first, static_cast<u32>(bag)));
    // In a batch of tables the first dimension says which.
    const i64 which = rows_at == 1 ? bag / (bags / to.extent[0]) : 0;
    const T* rows = at<T>(table, which * (rows_at == 1 ? table.stride[0] : 0));
    T* out = at<T>(to, offset_at(to, static_cast<u32>(bag * width)));
    for (i64 c = warp_lane(); c < width; c += kWarp) {
      W sum = 0;
      for (i64 l = 0; l < pooling; l += kFlight) {
        W values[kFlight];
#pragma unroll
        for (i64 j = 0; j < kFlight; ++j) {
          values[j] = 0;
          if (l + j >= pooling) continue;
          const i64 row = row_of(list[l + j], arguments, table.extent[rows_at]);
          if (row >= 0) values[j] = widen(rows[row * table.stride[rows_at] + c]);
        }
#pragma unroll
        for (i64 j = 0; j < kFlight; ++j) sum += values[j];
      }
      out[c] = narrow<T>(mean ? static_cast<W>(sum / static_cast<W>(pooling)) : sum);
    }
  }
}

}  // namespace tileway
