// Functions of whole rows: softmax, layer_norm, rms_norm.
#include <algorithm>
#include <cmath>
#include <limits>

#include "exec/host/kernels/all.hpp"
#include "exec/host/kernels/rows.hpp"

namespace tileway::host {
namespace {

// Calls body(row in fp32, results) for each row and rounds the results.
template <typename T, typename Body>
void for_rows(const View& from, const View& to, const Body& body) {
  const std::int64_t length = row_length(to);
  std::vector<float> room;
  std::vector<float> results(static_cast<std::size_t>(length));
  for (RowWalk<2> walk(to.extent, {&from, &to}); !walk.done(); walk.next()) {
    body(load_row<T>(at<T>(from, walk.offset(0)), length, room), results.data());
    T* out = at<T>(to, walk.offset(1));
    for (std::int64_t i = 0; i < length; ++i) out[i] = static_cast<T>(results[i]);
  }
}

// Instantiates only what check_structure lets through.
template <typename Body>
void with_floating(const View& view, const Body& body) {
  with_elements(view, [&]<typename T>(T zero) {
    if constexpr (std::is_same_v<Wide<T>, float>) body(zero);
  });
}

}  // namespace

void softmax(const Arguments& arguments) {
  const View& to = arguments.writes[0];
  if (volume(to.extent) == 0) return;
  const std::int64_t length = row_length(to);
  with_floating(to, [&]<typename T>(T) {
    for_rows<T>(arguments.reads[0], to, [&](const float* row, float* out) {
      const float largest = *std::max_element(row, row + length);
      float sum = 0;
      for (std::int64_t i = 0; i < length; ++i) sum += out[i] = std::exp(row[i] - largest);
      for (std::int64_t i = 0; i < length; ++i) out[i] /= sum;
    });
  });
}

void layer_norm(const Arguments& arguments) {
  const View& to = arguments.writes[0];
  if (volume(to.extent) == 0) return;
  const std::int64_t length = row_length(to);
  const auto count = static_cast<float>(length);
  with_floating(to, [&]<typename T>(T) {
    std::vector<float> gamma_room;
    std::vector<float> beta_room;
    const float* gamma = load_row<T>(at<T>(arguments.reads[1], 0), length, gamma_room);
    const float* beta = load_row<T>(at<T>(arguments.reads[2], 0), length, beta_room);
    for_rows<T>(arguments.reads[0], to, [&](const float* row, float* out) {
      float sum = 0;
      for (std::int64_t i = 0; i < length; ++i) sum += row[i];
      const float mean = sum / count;
      float squares = 0;
      for (std::int64_t i = 0; i < length; ++i) squares += (row[i] - mean) * (row[i] - mean);
      const float scale = 1 / std::sqrt(squares / count + static_cast<float>(arguments.body.value));
      for (std::int64_t i = 0; i < length; ++i) out[i] = (row[i] - mean) * scale * gamma[i] + beta[i];
    });
  });
}

void rms_norm(const Arguments& arguments) {
  const View& to = arguments.writes[0];
  if (volume(to.extent) == 0) return;
  const std::int64_t length = row_length(to);
  with_floating(to, [&]<typename T>(T) {
    std::vector<float> room;
    const float* gamma = load_row<T>(at<T>(arguments.reads[1], 0), length, room);
    for_rows<T>(arguments.reads[0], to, [&](const float* row, float* out) {
      float squares = 0;
      for (std::int64_t i = 0; i < length; ++i) squares += row[i] * row[i];
      const float scale =
          1 / std::sqrt(squares / static_cast<float>(length) + static_cast<float>(arguments.body.value));
      for (std::int64_t i = 0; i < length; ++i) out[i] = row[i] * scale * gamma[i];
    });
  });
}

}  // namespace tileway::host
