// What a well-formed safetensors file holds is what comes out.
#include "tileway/safetensors.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "support/safetensors_file.hpp"

namespace tileway {
namespace {

using testing_support::safetensors_bytes;
using testing_support::TemporaryFile;

TEST(SafeTensors, ListsNamesSortedWithTheirShapesAndDtypes) {
  const TemporaryFile file(
      safetensors_bytes(R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},)"
                        R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})",
                        28));
  const SafeTensors tensors = SafeTensors::open(file.path());
  EXPECT_EQ(tensors.names(), (std::vector<std::string>{"b", "w"}));
  EXPECT_TRUE(tensors.contains("w"));
  EXPECT_FALSE(tensors.contains("__metadata__"));
  EXPECT_EQ(tensors.shape("w"), (Shape{2, 3}));
  EXPECT_EQ(tensors.dtype("w"), DType::f32);
  EXPECT_EQ(tensors.dtype("b"), DType::bf16);
}

TEST(SafeTensors, LoadsTheBytesOfEachDtype) {
  struct Case {
    std::string name;
    DType dtype;
    std::size_t bytes;
  };
  for (const Case& c : {Case{"F32", DType::f32, 12}, Case{"BF16", DType::bf16, 6}, Case{"F16", DType::f16, 6},
                        Case{"F8_E4M3", DType::e4m3, 3}, Case{"I32", DType::i32, 12}, Case{"I64", DType::i64, 24}}) {
    SCOPED_TRACE(c.name);
    const std::string bytes = safetensors_bytes(
        R"({"t":{"dtype":")" + c.name + R"(","shape":[3],"data_offsets":[0,)" + std::to_string(c.bytes) + "]}}",
        c.bytes);
    const TemporaryFile file(bytes);
    const Array array = SafeTensors::open(file.path()).load("t");
    ASSERT_EQ(array.dtype(), c.dtype);
    ASSERT_EQ(array.bytes(), c.bytes);
    EXPECT_EQ(std::memcmp(array.data(), bytes.data() + bytes.size() - c.bytes, c.bytes), 0);
  }
}

TEST(SafeTensors, LoadsValues) {
  std::string bytes = safetensors_bytes(R"({"t":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}})", 0);
  const float values[] = {-0.5F, 1e20F};
  bytes.append(reinterpret_cast<const char*>(values), sizeof(values));
  const TemporaryFile file(bytes);
  EXPECT_EQ(SafeTensors::open(file.path()).load("t"), Array::from(DType::f32, {2, 1}, {-0.5, 1e20F}));
}

TEST(SafeTensors, LoadsScalarsAndEmptyTensors) {
  const TemporaryFile file(safetensors_bytes(R"({"scalar":{"dtype":"I32","shape":[],"data_offsets":[0,4]},)"
                                             R"("none":{"dtype":"F16","shape":[0,7],"data_offsets":[4,4]}})",
                                             4));
  const SafeTensors tensors = SafeTensors::open(file.path());
  EXPECT_EQ(tensors.load("scalar"), Array::from(DType::i32, {}, {0x03020100}));
  EXPECT_EQ(tensors.load("none").shape(), (Shape{0, 7}));
  EXPECT_EQ(tensors.load("none").bytes(), 0U);
}

TEST(SafeTensors, TakesAFileOfNoTensorsAndAPaddedHeader) {
  const TemporaryFile file(safetensors_bytes("{}      ", 0));
  EXPECT_TRUE(SafeTensors::open(file.path()).names().empty());
}

TEST(SafeTensors, ListsButDoesNotLoadDtypesThatTilewayDoesNotHave) {
  const TemporaryFile file(safetensors_bytes(R"({"t":{"dtype":"F4","shape":[2,2],"data_offsets":[0,2]}})", 2));
  const SafeTensors tensors = SafeTensors::open(file.path());
  EXPECT_EQ(tensors.names(), std::vector<std::string>{"t"});
  EXPECT_EQ(tensors.shape("t"), (Shape{2, 2}));
}

TEST(SafeTensors, CopiesReadTheFileThatWasOpenedEvenAfterItIsRemoved) {
  const std::string header = R"({"t":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})";
  const TemporaryFile file(safetensors_bytes(header, 4));
  const SafeTensors copy = SafeTensors(SafeTensors::open(file.path()));
  std::filesystem::remove(file.path());
  EXPECT_EQ(copy.load("t").at(0), 0x03020100);
}

}  // namespace
}  // namespace tileway
