// Products of e4m3 matrices with scales: widened to fp32, of which e4m3 is a part, then as any product of fp32.
#include "exec/host/kernels/all.hpp"
#include "exec/host/kernels/rows.hpp"

namespace tileway::host {
namespace {

// A dense matrix of fp32 and a view of it.
struct Matrix {
  std::vector<float> elements;
  View view;

  Matrix(std::int64_t rows, std::int64_t columns)
      : elements(static_cast<std::size_t>(rows * columns)),
        view{reinterpret_cast<std::byte*>(elements.data()), DType::f32, {rows, columns}, {columns, 1}} {}
};

Matrix widened(const View& from, bool transposed) {
  const std::int64_t rows = from.extent[0];
  const std::int64_t columns = from.extent[1];
  Matrix wide = transposed ? Matrix(columns, rows) : Matrix(rows, columns);
  for (std::int64_t r = 0; r < rows; ++r) {
    const E4m3* in = at<E4m3>(from, r * from.strides[0]);
    for (std::int64_t c = 0; c < columns; ++c)
      wide.elements[transposed ? c * rows + r : r * columns + c] = static_cast<float>(in[c]);
  }
  return wide;
}

}  // namespace

void scaled_matmul(const Arguments& arguments) {
  const View& c = arguments.writes[0];
  if (volume(c.extent) == 0) return;
  const Matrix a = widened(arguments.reads[0], false);
  const Matrix b = widened(arguments.reads[1], true);
  const Matrix sums(c.extent[0], c.extent[1]);
  const std::array<View, 2> sides{a.view, b.view};
  matmul({Body{.kind = Body::Kind::matmul}, sides, std::span(&sums.view, 1)});
  const View& scale_a = arguments.reads[2];
  const View& scale_b = arguments.reads[3];
  const std::int64_t down = scale_a.extent[0] == 1 ? 0 : scale_a.strides[0];
  const std::int64_t across = scale_b.extent[1] == 1 ? 0 : 1;
  with_elements(c, [&]<typename T>(T) {
    const float* sum = sums.elements.data();
    for (std::int64_t row = 0; row < c.extent[0]; ++row) {
      T* out = at<T>(c, row * c.strides[0]);
      for (std::int64_t column = 0; column < c.extent[1]; ++column, ++sum)
        out[column] = static_cast<T>(*sum * *at<float>(scale_a, row * down) * *at<float>(scale_b, column * across));
    }
  });
}

}  // namespace tileway::host
