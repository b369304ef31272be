// Walking over the rows of views, and moving rows between memory and fp32.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/element.hpp"
#include "exec/host/kernels/kernels.hpp"

namespace tileway::host {

// The extent of a row: that of the last dimension, 1 for a scalar.
inline std::int64_t row_length(const View& view) { return view.extent.empty() ? 1 : view.extent.back(); }

// Steps through the leading dimensions of an extent in row-major order, keeping an element offset for each of `count`
// views. A view whose dimension has extent 1, or that lacks the dimension, stays in place: it broadcasts.
template <std::size_t count>
class RowWalk {
 public:
  RowWalk(const Dims& extent, const std::array<const View*, count>& views) : extent_(extent) {
    if (!extent_.empty()) extent_.erase(extent_.size() - 1);
    index_ = Dims::filled(extent_.size(), 0);
    done_ = volume(extent_) == 0;
    for (std::size_t v = 0; v < count; ++v) {
      steps_[v] = Dims::filled(extent_.size(), 0);
      const View& view = *views[v];
      if (view.extent.empty()) continue;
      const std::size_t dims = view.extent.size() - 1;
      const std::size_t shift = extent_.size() - dims;
      for (std::size_t d = 0; d < dims; ++d) {
        if (view.extent[d] != 1) steps_[v][d + shift] = view.strides[d];
      }
    }
  }

  bool done() const { return done_; }
  std::int64_t offset(std::size_t v) const { return offsets_[v]; }
  const Dims& index() const { return index_; }
  void next() {
    for (std::size_t d = extent_.size(); d-- > 0;) {
      for (std::size_t v = 0; v < count; ++v) offsets_[v] += steps_[v][d];
      if (++index_[d] < extent_[d]) return;
      for (std::size_t v = 0; v < count; ++v) offsets_[v] -= steps_[v][d] * extent_[d];
      index_[d] = 0;
    }
    done_ = true;
  }

 private:
  Dims extent_;
  Dims index_;
  std::array<Dims, count> steps_{};
  std::array<std::int64_t, count> offsets_{};
  bool done_ = false;
};

template <typename T>
T* at(const View& view, std::int64_t offset) {
  return reinterpret_cast<T*>(view.data) + offset;
}

// Calls `body` with a value of the element type of the view.
template <typename Body>
decltype(auto) with_elements(const View& view, Body&& body) {
  return with_element_type(view.dtype, std::forward<Body>(body));
}

// A row in its Wide type: the memory itself where that is what it holds, else converted into `room`.
template <typename T>
const Wide<T>* load_row(const T* row, std::int64_t length, std::vector<Wide<T>>& room) {
  if constexpr (std::is_same_v<T, Wide<T>>) {
    return row;
  } else {
    room.resize(static_cast<std::size_t>(length));
    for (std::int64_t i = 0; i < length; ++i) room[i] = static_cast<Wide<T>>(row[i]);
    return room.data();
  }
}

}  // namespace tileway::host
