// Matrix products by Eigen, in fp32.
#include <Eigen/Core>

#include "exec/host/kernels/all.hpp"
#include "exec/host/kernels/rows.hpp"

namespace tileway::host {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Strided = Eigen::Map<const Matrix, Eigen::Unaligned, Eigen::OuterStride<>>;

// The last two dimensions of a view.
struct Panel {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t stride;
};

Panel panel_of(const View& view) {
  const std::size_t dims = view.extent.size();
  return {view.extent[dims - 2], view.extent[dims - 1], view.strides[dims - 2]};
}

// The panel in fp32: in place if that is what it is, else converted into `room`.
template <typename T>
Strided load(const View& view, std::int64_t offset, std::vector<float>& room) {
  const Panel panel = panel_of(view);
  const T* data = at<T>(view, offset);
  if constexpr (std::is_same_v<T, float>) {
    return {data, panel.rows, panel.columns, Eigen::OuterStride<>(panel.stride)};
  } else {
    room.resize(static_cast<std::size_t>(panel.rows * panel.columns));
    for (std::int64_t r = 0; r < panel.rows; ++r) {
      for (std::int64_t c = 0; c < panel.columns; ++c)
        room[r * panel.columns + c] = static_cast<float>(data[r * panel.stride + c]);
    }
    return {room.data(), panel.rows, panel.columns, Eigen::OuterStride<>(panel.columns)};
  }
}

// The view without its last dimension but one, so that a RowWalk over it visits the batch.
View batch_of(const View& view) {
  View batch = view;
  batch.extent.erase(batch.extent.size() - 2);
  batch.strides.erase(batch.strides.size() - 2);
  return batch;
}

template <typename T>
void multiply(const View& a, const View& b, const View& c) {
  const Panel out = panel_of(c);
  const View batch_a = batch_of(a);
  const View batch_b = batch_of(b);
  const View batch_c = batch_of(c);
  std::vector<float> room_a;
  std::vector<float> room_b;
  Matrix sums;
  for (RowWalk<3> walk(batch_c.extent, {&batch_a, &batch_b, &batch_c}); !walk.done(); walk.next()) {
    const Strided left = load<T>(a, walk.offset(0), room_a);
    const Strided right = load<T>(b, walk.offset(1), room_b);
    T* data = at<T>(c, walk.offset(2));
    if constexpr (std::is_same_v<T, float>) {
      Eigen::Map<Matrix, Eigen::Unaligned, Eigen::OuterStride<>> target(data, out.rows, out.columns,
                                                                        Eigen::OuterStride<>(out.stride));
      target.noalias() = left * right;
    } else {
      sums.noalias() = left * right;
      for (std::int64_t r = 0; r < out.rows; ++r) {
        for (std::int64_t i = 0; i < out.columns; ++i) data[r * out.stride + i] = static_cast<T>(sums(r, i));
      }
    }
  }
}

}  // namespace

void matmul(const Arguments& arguments) {
  const View& c = arguments.writes[0];
  if (volume(c.extent) == 0) return;
  with_elements(c, [&]<typename T>(T) {
    if constexpr (!std::is_integral_v<T> && !std::is_same_v<T, double>)
      multiply<T>(arguments.reads[0], arguments.reads[1], c);
  });
}

}  // namespace tileway::host
