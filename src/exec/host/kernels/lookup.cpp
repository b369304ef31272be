// Rows by index: gather_rows and embedding_bag.
#include <string>

#include "exec/host/kernels/all.hpp"
#include "exec/host/kernels/rows.hpp"

namespace tileway::host {
namespace {

// The row of the table box that an index names, or -1 for a row that another rank holds.
std::int64_t row_of(std::int64_t index, const Body& body, std::int64_t held) {
  TW_REQUIRE(index >= 0 && index < body.rows, ErrorKind::invalid, .where = std::string(name_of(body.kind)),
             .what = "an index outside the table", .expected = "0 <= index < " + std::to_string(body.rows),
             .got = std::to_string(index));
  const std::int64_t row = index - body.first;
  return row >= 0 && row < held ? row : -1;
}

std::int64_t index_at(const View& indices, std::int64_t offset) {
  return indices.dtype == DType::i32 ? *at<std::int32_t>(indices, offset) : *at<std::int64_t>(indices, offset);
}

}  // namespace

void gather_rows(const Arguments& arguments) {
  const View& table = arguments.reads[0];
  const View& indices = arguments.reads[1];
  const View& to = arguments.writes[0];
  // One row of the result for each index: give the indices a last dimension of 1, so that both walk alike.
  View places = indices;
  places.extent.push_back(1);
  places.strides.push_back(1);
  const std::int64_t width = row_length(to);
  with_elements(to, [&]<typename T>(T) {
    for (RowWalk<2> walk(to.extent, {&places, &to}); !walk.done(); walk.next()) {
      const std::int64_t row = row_of(index_at(indices, walk.offset(0)), arguments.body, table.extent[0]);
      T* out = at<T>(to, walk.offset(1));
      if (row < 0) {
        std::fill(out, out + width, T{});
      } else {
        const T* in = at<T>(table, row * table.strides[0]);
        std::copy(in, in + width, out);
      }
    }
  });
}

void embedding_bag(const Arguments& arguments) {
  const View& table = arguments.reads[0];
  const View& indices = arguments.reads[1];
  const View& to = arguments.writes[0];
  const std::int64_t width = row_length(to);
  const std::int64_t pooling = row_length(indices);
  const std::size_t rows_at = table.extent.size() - 2;
  with_elements(to, [&]<typename T>(T) {
    using W = Wide<T>;
    std::vector<W> sums(static_cast<std::size_t>(width));
    for (RowWalk<2> walk(to.extent, {&indices, &to}); !walk.done(); walk.next()) {
      const std::int64_t table_start = rows_at == 1 ? walk.index()[0] * table.strides[0] : 0;
      std::fill(sums.begin(), sums.end(), W{0});
      for (std::int64_t l = 0; l < pooling; ++l) {
        const std::int64_t row = row_of(index_at(indices, walk.offset(0) + l), arguments.body, table.extent[rows_at]);
        if (row < 0) continue;
        const T* in = at<T>(table, table_start + row * table.strides[rows_at]);
        for (std::int64_t i = 0; i < width; ++i) sums[i] += static_cast<W>(in[i]);
      }
      T* out = at<T>(to, walk.offset(1));
      const bool mean = arguments.body.op == ReduceOp::mean && pooling > 0;
      for (std::int64_t i = 0; i < width; ++i)
        out[i] = static_cast<T>(mean ? sums[i] / static_cast<W>(pooling) : sums[i]);
    }
  });
}

}  // namespace tileway::host
