// Scales of products of 8-bit elements: fp32 sums are multiplied by that of their row, then by that of their column.
#pragma once

#include "tileway/team.cuh"

namespace tileway {

// Of the part of a product that begins at (row, column). reads[2] is [m or 1, 1] and reads[3] is [1, n or 1]: one for
// each, or one for all.
struct Scales {
  const float* rows;
  const float* columns;
  i64 row_step;
  i64 column_step;
  u32 row_count;  // beyond these, nothing is read
  u32 column_count;

  __device__ Scales(const View* reads, i64 row, i64 column, u32 its_rows, u32 its_columns)
      : row_step(reads[2].extent[0] == 1 ? 0 : reads[2].stride[0]),
        column_step(reads[3].extent[1] == 1 ? 0 : reads[3].stride[1]),
        row_count(its_rows),
        column_count(its_columns) {
    rows = at<float>(reads[2], row * row_step);
    columns = at<float>(reads[3], column * column_step);
  }
  __device__ float of_row(u32 row) const { return row < row_count ? rows[row * row_step] : 0; }
  __device__ float of_column(u32 column) const { return column < column_count ? columns[column * column_step] : 0; }

  // Four neighbours as tensor cores leave them to a thread: (row, column), the next column, and both eight rows down.
  __device__ static void apply(float* sums, const float (&two_rows)[2], const float (&two_columns)[2]) {
#pragma unroll
    for (u32 i = 0; i < 4; ++i) sums[i] = sums[i] * two_rows[i / 2] * two_columns[i % 2];
  }
};

}  // namespace tileway
