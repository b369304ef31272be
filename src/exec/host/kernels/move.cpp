// copy, cast, transpose.
#include <cstring>
#include <utility>

#include "exec/host/kernels/all.hpp"
#include "exec/host/kernels/rows.hpp"

namespace tileway::host {
namespace {

// Joins inner dimensions that lie one after the other in memory into one row.
View joined_rows(View view) {
  while (view.extent.size() >= 2) {
    const std::size_t last = view.extent.size() - 1;
    const bool dense = view.strides[last - 1] == view.extent[last] || view.extent[last - 1] == 1;
    if (!dense) break;
    view.extent[last - 1] *= view.extent[last];
    view.strides[last - 1] = 1;
    view.extent.erase(last);
    view.strides.erase(last);
  }
  return view;
}

}  // namespace

void copy(const Arguments& arguments) {
  const View from = joined_rows(arguments.reads[0]);
  const View to = joined_rows(arguments.writes[0]);
  const auto element = static_cast<std::int64_t>(size_of(to.dtype));
  if (volume(to.extent) == 0) return;
  // Rows of the two sides may differ in length: copy what is left of the shorter.
  RowWalk<1> source(from.extent, {&from});
  RowWalk<1> target(to.extent, {&to});
  std::int64_t read = 0;
  std::int64_t written = 0;
  while (!target.done()) {
    const std::int64_t count = std::min(row_length(from) - read, row_length(to) - written);
    std::memcpy(to.data + (target.offset(0) + written) * element, from.data + (source.offset(0) + read) * element,
                static_cast<std::size_t>(count * element));
    read += count;
    written += count;
    if (read == row_length(from)) {
      source.next();
      read = 0;
    }
    if (written == row_length(to)) {
      target.next();
      written = 0;
    }
  }
}

void cast(const Arguments& arguments) {
  const View& from = arguments.reads[0];
  const View& to = arguments.writes[0];
  if (volume(to.extent) == 0) return;
  with_elements(from, [&]<typename From>(From) {
    with_elements(to, [&]<typename To>(To) {
      for (RowWalk<2> walk(to.extent, {&from, &to}); !walk.done(); walk.next()) {
        const From* in = at<From>(from, walk.offset(0));
        To* out = at<To>(to, walk.offset(1));
        for (std::int64_t i = 0; i < row_length(to); ++i) {
          if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
            out[i] = static_cast<To>(in[i]);
          } else {
            out[i] = to_element<To>(static_cast<double>(in[i]));
          }
        }
      }
    });
  });
}

namespace {

template <typename T>
void transpose_elements(const View& from, const View& to, const Dims& order) {
  // The read as the write sees it: its strides in the write's order of dimensions.
  Dims strides = Dims::filled(order.size(), 0);
  for (std::size_t d = 0; d < order.size(); ++d) strides[d] = from.strides[order[d]];
  const std::int64_t step = strides.empty() ? 0 : strides.back();
  for (RowWalk<1> walk(to.extent, {&to}); !walk.done(); walk.next()) {
    std::int64_t start = 0;
    for (std::size_t d = 0; d < walk.index().size(); ++d) start += walk.index()[d] * strides[d];
    const T* in = at<T>(from, start);
    T* out = at<T>(to, walk.offset(0));
    for (std::int64_t i = 0; i < row_length(to); ++i) out[i] = in[i * step];
  }
}

}  // namespace

void transpose(const Arguments& arguments) {
  const View& from = arguments.reads[0];
  const View& to = arguments.writes[0];
  if (volume(to.extent) == 0) return;
  switch (size_of(to.dtype)) {  // only the size matters: bits are moved
    case 1:
      return transpose_elements<std::uint8_t>(from, to, arguments.body.dims);
    case 2:
      return transpose_elements<std::uint16_t>(from, to, arguments.body.dims);
    case 4:
      return transpose_elements<std::uint32_t>(from, to, arguments.body.dims);
    default:
      return transpose_elements<std::uint64_t>(from, to, arguments.body.dims);
  }
}

}  // namespace tileway::host
