// Matrix products with fp32 sums. Every element is the sum over k = 0, 1, 2, ... in that order, each product and each
// sum rounded once, whatever the shape of the tile and the width of the machine's vectors: so plans that cut a product
// differently agree bit for bit (docs/DESIGN.md), which a blocked library product does not promise.
#include <algorithm>

#include "base/tf32.hpp"
#include "exec/host/kernels/all.hpp"
#include "exec/host/kernels/rows.hpp"

namespace tileway::host {
namespace {

// A block is four rows of the left side times a strip of sixteen columns of the right one, packed and zero-padded.
constexpr int kBlockRows = 4;
constexpr int kStripVectors = 2;
using Vector [[gnu::vector_size(32)]] = float;
constexpr std::int64_t kVectorWidth = sizeof(Vector) / sizeof(float);
constexpr std::int64_t kStripWidth = kStripVectors * kVectorWidth;

struct alignas(sizeof(Vector)) Strip {
  Vector parts[kStripVectors];
};

using BlockRows = std::array<const float*, kBlockRows>;
using Block = std::array<Strip, kBlockRows>;
using MultiplyBlock = void (*)(const BlockRows&, const Strip*, std::int64_t depth, Block&);

[[gnu::always_inline]] inline void multiply_block_in_order(const BlockRows& rows, const Strip* strip,
                                                           std::int64_t depth, Block& block) {
  Vector sums[kBlockRows][kStripVectors] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    for (int r = 0; r < kBlockRows; ++r) {
      for (int v = 0; v < kStripVectors; ++v) sums[r][v] += rows[r][k] * strip[k].parts[v];
    }
  }
  for (int r = 0; r < kBlockRows; ++r) {
    for (int v = 0; v < kStripVectors; ++v) block[r].parts[v] = sums[r][v];
  }
}

void multiply_block(const BlockRows& rows, const Strip* strip, std::int64_t depth, Block& block) {
  multiply_block_in_order(rows, strip, depth, block);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void multiply_block_avx2(const BlockRows& rows, const Strip* strip, std::int64_t depth,
                                                 Block& block) {
  multiply_block_in_order(rows, strip, depth, block);
}
#endif

MultiplyBlock fastest_multiply_block() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return multiply_block_avx2;
#endif
  return multiply_block;
}

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

// The view without its last dimension but one, so that a RowWalk over it visits the batch.
View batch_of(const View& view) {
  View batch = view;
  batch.extent.erase(batch.extent.size() - 2);
  batch.strides.erase(batch.strides.size() - 2);
  return batch;
}

// An operand's element as it is multiplied.
template <bool kTf32, typename T>
float operand(T element) {
  const auto value = static_cast<float>(element);
  return kTf32 ? rounded_to_tf32(value) : value;
}

// Row by row in fp32: in place if that is what it is, else converted into `room`.
template <bool kTf32, typename T>
std::vector<const float*> load_left(const T* data, const Panel& panel, std::vector<float>& room) {
  std::vector<const float*> rows(static_cast<std::size_t>(panel.rows));
  constexpr bool kInPlace = std::is_same_v<T, float> && !kTf32;
  if constexpr (!kInPlace) room.resize(static_cast<std::size_t>(panel.rows * panel.columns));
  for (std::int64_t r = 0; r < panel.rows; ++r) {
    if constexpr (kInPlace) {
      rows[r] = data + r * panel.stride;
    } else {
      rows[r] = room.data() + r * panel.columns;
      for (std::int64_t k = 0; k < panel.columns; ++k)
        room[r * panel.columns + k] = operand<kTf32>(data[r * panel.stride + k]);
    }
  }
  return rows;
}

template <bool kTf32, typename T>
void pack_strip(const T* data, const Panel& panel, std::int64_t width, std::vector<Strip>& strip) {
  strip.assign(static_cast<std::size_t>(panel.rows), Strip{});
  for (std::int64_t k = 0; k < panel.rows; ++k) {
    for (std::int64_t c = 0; c < width; ++c)
      strip[k].parts[c / kVectorWidth][c % kVectorWidth] = operand<kTf32>(data[k * panel.stride + c]);
  }
}

template <typename T>
void store_block(const Block& block, int rows, std::int64_t width, std::int64_t stride, T* data) {
  for (int r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < width; ++c)
      data[r * stride + c] = static_cast<T>(block[r].parts[c / kVectorWidth][c % kVectorWidth]);
  }
}

template <bool kTf32, typename T>
void multiply(const View& a, const View& b, const View& c) {
  static const MultiplyBlock multiply_one = fastest_multiply_block();
  const Panel left = panel_of(a);
  const Panel right = panel_of(b);
  const Panel out = panel_of(c);
  const View batch_a = batch_of(a);
  const View batch_b = batch_of(b);
  const View batch_c = batch_of(c);
  std::vector<float> room;
  std::vector<Strip> strip;
  for (RowWalk<3> walk(batch_c.extent, {&batch_a, &batch_b, &batch_c}); !walk.done(); walk.next()) {
    const std::vector<const float*> rows = load_left<kTf32>(at<T>(a, walk.offset(0)), left, room);
    for (std::int64_t column = 0; column < out.columns; column += kStripWidth) {
      const std::int64_t width = std::min(kStripWidth, out.columns - column);
      pack_strip<kTf32>(at<T>(b, walk.offset(1)) + column, right, width, strip);
      for (std::int64_t row = 0; row < out.rows; row += kBlockRows) {
        const int count = static_cast<int>(std::min<std::int64_t>(kBlockRows, out.rows - row));
        BlockRows block_rows;
        for (int r = 0; r < kBlockRows; ++r) block_rows[r] = rows[row + std::min(r, count - 1)];
        Block block;
        multiply_one(block_rows, strip.data(), left.columns, block);
        store_block(block, count, width, out.stride, at<T>(c, walk.offset(2)) + row * out.stride + column);
      }
    }
  }
}

}  // namespace

void matmul(const Arguments& arguments) {
  const View& c = arguments.writes[0];
  if (volume(c.extent) == 0) return;
  with_elements(c, [&]<typename T>(T) {
    if constexpr (std::is_same_v<T, float>) {
      if (arguments.body.tf32) return multiply<true, T>(arguments.reads[0], arguments.reads[1], c);
    }
    if constexpr (!std::is_integral_v<T> && !std::is_same_v<T, double>)
      multiply<false, T>(arguments.reads[0], arguments.reads[1], c);
  });
}

}  // namespace tileway::host
