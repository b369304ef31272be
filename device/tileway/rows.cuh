// Functions of whole rows: softmax, layer_norm, rms_norm. A warp takes a row; sums go across the warp in a fixed order
// that only the length decides, so the bits of a row do not depend on the tile it is in.
#pragma once

#include "tileway/walk.cuh"

namespace tileway {

inline constexpr u32 kWarp = 32;
__device__ inline u32 warp_lane() { return worker() % kWarp; }

template <typename Combine>
__device__ inline float across_warp(float value, const Combine& combine) {
#pragma unroll
  for (u32 step = kWarp / 2; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}
__device__ inline float sum_across_warp(float value) {
  return across_warp(value, [](float a, float b) { return a + b; });
}

// Calls body(row of the read, row of the write) for each row, a warp a row.
template <typename T, typename Body>
__device__ inline void for_rows(const View& from, const View& to, const Body& body) {
  const i64 length = row_length(to);
  if (length == 0) return;
  const i64 rows = volume(to) / length;
  for (i64 row = worker() / kWarp; row < rows; row += kWorkers / kWarp) {
    const auto first = static_cast<u32>(row * length);
    body(at<T>(from, offset_at(from, first)), at<T>(to, offset_at(to, first)));
  }
}

template <typename T>
__device__ inline void softmax(const Arguments& arguments) {
  const i64 length = row_length(arguments.writes[0]);
  for_rows<T>(arguments.reads[0], arguments.writes[0], [&](const T* row, T* out) {
    float largest = -infinity();
    for (i64 i = warp_lane(); i < length; i += kWarp) largest = fmaxf(largest, widen(row[i]));
    largest = across_warp(largest, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0;
    for (i64 i = warp_lane(); i < length; i += kWarp) sum += expf(widen(row[i]) - largest);
    sum = sum_across_warp(sum);
    for (i64 i = warp_lane(); i < length; i += kWarp) out[i] = narrow<T>(expf(widen(row[i]) - largest) / sum);
  });
}

template <typename T>
__device__ inline void layer_norm(const Arguments& arguments) {
  const i64 length = row_length(arguments.writes[0]);
  const T* gamma = at<T>(arguments.reads[1], 0);
  const T* beta = at<T>(arguments.reads[2], 0);
  const auto count = static_cast<float>(length);
  for_rows<T>(arguments.reads[0], arguments.writes[0], [&](const T* row, T* out) {
    float sum = 0;
    for (i64 i = warp_lane(); i < length; i += kWarp) sum += widen(row[i]);
    const float mean = sum_across_warp(sum) / count;
    float squares = 0;
    for (i64 i = warp_lane(); i < length; i += kWarp) squares += (widen(row[i]) - mean) * (widen(row[i]) - mean);
    const float scale = 1 / sqrtf(sum_across_warp(squares) / count + static_cast<float>(arguments.body.value));
    for (i64 i = warp_lane(); i < length; i += kWarp)
      out[i] = narrow<T>((widen(row[i]) - mean) * scale * widen(gamma[i]) + widen(beta[i]));
  });
}

template <typename T>
__device__ inline void rms_norm(const Arguments& arguments) {
  const i64 length = row_length(arguments.writes[0]);
  const T* gamma = at<T>(arguments.reads[1], 0);
  for_rows<T>(arguments.reads[0], arguments.writes[0], [&](const T* row, T* out) {
    float squares = 0;
    for (i64 i = warp_lane(); i < length; i += kWarp) squares += widen(row[i]) * widen(row[i]);
    squares = sum_across_warp(squares);
    const float scale = 1 / sqrtf(squares / static_cast<float>(length) + static_cast<float>(arguments.body.value));
    for (i64 i = warp_lane(); i < length; i += kWarp) out[i] = narrow<T>(widen(row[i]) * scale * widen(gamma[i]));
  });
}

}  // namespace tileway
