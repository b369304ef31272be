#include "exec/cuda/copy_engine.hpp"

#include <algorithm>

namespace tileway::cuda {
namespace {

// Steps through the runs of contiguous bytes of a view.
class Runs {
 public:
  Runs(const View& view, std::size_t element_bytes) : view_(view), bytes_(element_bytes) {
    // Inner dimensions that lie one after the other are one.
    while (view_.dims >= 2) {
      const u32 last = view_.dims - 1;
      if (view_.stride[last - 1] != view_.extent[last] && view_.extent[last - 1] != 1) break;
      view_.extent[last - 1] *= view_.extent[last];
      view_.stride[last - 1] = 1;
      --view_.dims;
    }
  }
  Address at() const { return view_.data + static_cast<u64>(offset_ + taken_) * bytes_; }
  // Bytes up to the end of the run.
  std::size_t left() const { return static_cast<std::size_t>(length() - taken_) * bytes_; }
  void take(std::size_t bytes) {
    taken_ += static_cast<i64>(bytes / bytes_);
    if (taken_ < length()) return;
    taken_ = 0;
    for (u32 d = view_.dims - (view_.dims > 0); d-- > 0;) {
      offset_ += view_.stride[d];
      if (++index_[d] < view_.extent[d]) return;
      offset_ -= view_.stride[d] * view_.extent[d];
      index_[d] = 0;
    }
  }

 private:
  i64 length() const { return view_.dims == 0 ? 1 : view_.extent[view_.dims - 1]; }

  View view_;
  std::size_t bytes_;
  i64 index_[kMaxViewDims] = {};
  i64 offset_ = 0;
  i64 taken_ = 0;
};

// Whether the row continues the copy's rows.
bool continues(const Copy2D& copy, Address from, Address to, std::size_t bytes) {
  if (bytes != copy.width) return false;
  const std::size_t from_step = from - (copy.from + (copy.height - 1) * copy.from_pitch);
  const std::size_t to_step = to - (copy.to + (copy.height - 1) * copy.to_pitch);
  if (copy.height == 1) return from > copy.from && to > copy.to && from_step >= bytes && to_step >= bytes;
  return from_step == copy.from_pitch && to_step == copy.to_pitch;
}

}  // namespace

std::vector<Copy2D> copies_of(const View& from, const View& to, std::size_t element_bytes) {
  std::size_t rest = element_bytes;
  for (u32 d = 0; d < to.dims; ++d) rest *= static_cast<std::size_t>(to.extent[d]);
  std::vector<Copy2D> copies;
  Runs source(from, element_bytes);
  Runs target(to, element_bytes);
  while (rest > 0) {
    const std::size_t bytes = std::min(source.left(), target.left());
    if (!copies.empty() && continues(copies.back(), source.at(), target.at(), bytes)) {
      Copy2D& copy = copies.back();
      copy.from_pitch = (source.at() - copy.from) / copy.height;
      copy.to_pitch = (target.at() - copy.to) / copy.height;
      ++copy.height;
    } else {
      Copy2D copy;
      copy.from = source.at();
      copy.from_pitch = bytes;
      copy.to = target.at();
      copy.to_pitch = bytes;
      copy.width = bytes;
      copy.height = 1;
      copies.push_back(copy);
    }
    source.take(bytes);
    target.take(bytes);
    rest -= bytes;
  }
  return copies;
}

}  // namespace tileway::cuda
