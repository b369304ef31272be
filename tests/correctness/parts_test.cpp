// Cutting a whole array into what members hold, and back.
#include <cstring>

#include "support/values.hpp"

namespace tileway {
namespace {

using testing::bf16;
using testing::expect_refusal;
using testing::f32;
using testing::i32;
using testing::kNan;

TensorType type_of(DType dtype, Shape shape, Placement placement) { return {dtype, shape, 0, std::move(placement)}; }

TEST(Parts, UnevenAndEmptyPartsAreCutAndJoined) {
  const TensorType type = type_of(DType::f32, {2, 3}, Shard(1, {1, 0, 2}));
  const Array whole = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  const std::vector<Array> parts{f32({2, 1}, {1, 4}), f32({2, 0}, {}), f32({2, 2}, {2, 3, 5, 6})};
  for (int m = 0; m < 3; ++m) EXPECT_EQ(local_part(whole, type, m), parts[m]);
  EXPECT_EQ(joined(parts, type), whole);
}

TEST(Parts, AReplicatedTensorsPartIsTheWhole) {
  const TensorType type = type_of(DType::i32, {2}, Replicate());
  EXPECT_EQ(local_part(i32({2}, {1, 2}), type, 1), i32({2}, {1, 2}));
  EXPECT_EQ(joined({i32({2}, {1, 2}), i32({2}, {1, 2})}, type), i32({2}, {1, 2}));
}

TEST(Parts, ElementsThatNoDoubleHoldsAreCopiedBitForBit) {
  const std::int64_t odd = 9007199254740993;  // 2^53 + 1
  Array part(DType::i64, {1});
  std::memcpy(part.data(), &odd, sizeof odd);
  const TensorType integers = type_of(DType::i64, {2}, Shard(0, {1, 1}));
  const Array whole = joined({part, part}, integers);
  EXPECT_EQ(local_part(whole, integers, 1), part);

  const std::uint16_t payload = 0x7fa5;  // a NaN that is not the usual one
  const TensorType halves = type_of(DType::bf16, {2}, Shard(0, {0, 2}));
  const Array empty(DType::bf16, {0});
  Array two(DType::bf16, {2});
  std::memcpy(two.data() + 2, &payload, sizeof payload);
  EXPECT_EQ(joined({empty, two}, halves), two);
}

TEST(Parts, PartialsAreCombinedInFp64AndRoundedOnce) {
  EXPECT_EQ(joined({f32({1}, {16777216}), f32({1}, {1}), f32({1}, {1})}, type_of(DType::f32, {1}, Partial())),
            f32({1}, {16777218}));
  EXPECT_EQ(joined({bf16({1}, {1}), bf16({1}, {0.00390625})}, type_of(DType::bf16, {1}, Partial())), bf16({1}, {1}));
  EXPECT_EQ(joined({i32({2}, {1, 5}), i32({2}, {3, 2})}, type_of(DType::i32, {2}, Partial(ReduceOp::max))),
            i32({2}, {3, 5}));
  EXPECT_EQ(joined({i32({2}, {1, 5}), i32({2}, {3, 2})}, type_of(DType::i32, {2}, Partial(ReduceOp::min))),
            i32({2}, {1, 2}));
}

TEST(Parts, AMaximumOfPartialsPassesNanOn) {
  const TensorType type = type_of(DType::f32, {2}, Partial(ReduceOp::max));
  const std::vector<double> values = joined({f32({2}, {kNan, 1}), f32({2}, {1, kNan})}, type).values();
  EXPECT_TRUE(values[0] != values[0] && values[1] != values[1]);
}

TEST(Parts, APartialHasNoParts) {
  expect_refusal([] { local_part(f32({1}, {1}), type_of(DType::f32, {1}, Partial()), 0); },
                 {"f32[1] Partial(sum)", "no parts"});
}

TEST(Parts, PartsThatDoNotFitTheTensorAreRefused) {
  const TensorType type = type_of(DType::f32, {3}, Shard(0, {2, 1}));
  expect_refusal([&] { local_part(f32({2}, {1, 2}), type, 0); }, {"expected [3]", "got [2]"});
  expect_refusal([&] { local_part(f32({3}, {1, 2, 3}), type, 2); }, {"no such member", "expected 0 to 1", "got 2"});
  expect_refusal([&] { joined({}, type); }, {"f32[3] Shard(0, [2, 1])", "no parts"});
  expect_refusal([&] { joined({f32({2}, {1, 2})}, type); }, {"expected 2", "got 1"});
  expect_refusal([&] { joined({f32({2}, {1, 2}), f32({2}, {3, 4})}, type); }, {"member 1", "f32[1]", "f32[2]"});
  expect_refusal([&] { joined({f32({2}, {1, 2}), i32({1}, {3})}, type); }, {"member 1", "f32[1]", "i32[1]"});
  expect_refusal(
      [&] {
        joined({f32({2}, {1, 2}), f32({3}, {1, 2, 3})}, type_of(DType::f32, {3}, Partial()));
      },
      {"member 0", "f32[3]", "f32[2]"});
}

}  // namespace
}  // namespace tileway
