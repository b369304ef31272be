#include <algorithm>
#include <array>
#include <string>

#include "tileway/error.hpp"
#include "tileway/plan.hpp"

namespace tileway {
namespace {

constexpr std::array<std::string_view, kBodyKindCount> kBodyNames{
    "none",       "copy",      "cast",       "pointwise",      "matmul",      "scaled_matmul", "softmax",
    "layer_norm", "rms_norm",  "reduce_dim", "transpose",      "gather_rows", "embedding_bag", "reduce_ranks",
    "copy_rows",  "zero_rows", "all_reduce", "reduce_scatter", "exchange"};

}  // namespace

std::string_view name_of(Body::Kind kind) { return kBodyNames[static_cast<std::size_t>(kind)]; }

Body::Kind parse_body_kind(std::string_view text) {
  const auto* found = std::find(kBodyNames.begin(), kBodyNames.end(), text);
  TW_REQUIRE(found != kBodyNames.end(), ErrorKind::invalid, .where = "body", .what = "unknown name",
             .got = std::string(text));
  return static_cast<Body::Kind>(found - kBodyNames.begin());
}

}  // namespace tileway
