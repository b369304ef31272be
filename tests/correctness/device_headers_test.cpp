// The device headers compile for every architecture, for NVRTC, without a GPU; images are kept and checked.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/cuda/compile.hpp"
#include "tileway/error.hpp"

namespace tileway::cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKernel = R"(
#include "tileway/copy.cuh"
extern "C" __global__ void hand_over(void* peer, const void* from, tileway::u64 bytes, tileway::SystemSignal* signal,
                                     const tileway::SystemSignal* mine, tileway::u32 target, tileway::u64 deadline_ns,
                                     const tileway::u32* abort, int* answer) {
  tileway::put_signal_by_block(peer, from, bytes, signal, 1);
  if (threadIdx.x == 0) *answer = static_cast<int>(tileway::wait(mine, target, deadline_ns, abort));
}
)";

class DeviceHeaders : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(compiler_found()) << compiler_text() << "; scripts/install test brings NVRTC";
    cache_ = fs::temp_directory_path() / fmt::format("tileway-cache-{}", getpid());
    setenv("TILEWAY_CACHE", cache_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("TILEWAY_CACHE");
    fs::remove_all(cache_);
  }
  fs::path only_image() const {
    fs::path found;
    for (const auto& entry : fs::directory_iterator(cache_)) found = entry.path();
    return found;
  }
  fs::path cache_;
};

TEST_F(DeviceHeaders, CompileForEveryArchitecture) {
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
    const Image image = compile(kKernel, "hand_over", architecture);
    EXPECT_EQ(image.cubin.substr(1, 3), "ELF") << architecture;
  }
}

TEST_F(DeviceHeaders, ImagesAreKeptPrivatelyAndDamagedOnesMadeAnew) {
  const std::string cubin = compile(kKernel, "hand_over", "sm_90a").cubin;
  EXPECT_TRUE(compile(kKernel, "hand_over", "sm_90a").from_cache);
  EXPECT_FALSE(compile(std::string(kKernel) + "\n", "hand_over", "sm_90a").from_cache) << "another text";
  fs::remove_all(cache_);
  compile(kKernel, "hand_over", "sm_90a");
  struct stat info {};
  ASSERT_EQ(stat(cache_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
  std::fstream(only_image(), std::ios::in | std::ios::out | std::ios::binary).seekp(500).put('!');
  const Image again = compile(kKernel, "hand_over", "sm_90a");
  EXPECT_FALSE(again.from_cache);
  EXPECT_EQ(again.cubin, cubin);
  std::ofstream(only_image(), std::ios::trunc) << "tileway image 7 00";
  EXPECT_FALSE(compile(kKernel, "hand_over", "sm_90a").from_cache);
}

TEST_F(DeviceHeaders, ASignalOfAPeerCannotBeRaisedAtDeviceScope) {
  const char* wrong = R"(
#include "tileway/copy.cuh"
extern "C" __global__ void wrong(void* peer, const void* from, tileway::DeviceSignal* signal) {
  tileway::put_signal_by_block(peer, from, 16, signal, 1);
}
)";
  try {
    compile(wrong, "wrong", "sm_90a");
    ADD_FAILURE() << "it compiles";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid);
    EXPECT_NE(std::string(error.what()).find("DeviceSignal"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tileway::cuda
