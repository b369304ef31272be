// The device headers compile for every architecture, for NVRTC, without a GPU; images are kept and checked.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/cuda/compile.hpp"
#include "tileway/error.hpp"
#include "tileway/function.hpp"
#include "tileway/packet.cuh"

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

TEST_F(DeviceHeaders, EachCompilesAloneForEveryArchitecture) {
  for (const Header& header : device_headers()) {
    const std::string source = fmt::format("#include \"{}\"\nextern \"C\" __global__ void alone() {{}}\n", header.name);
    for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"})
      EXPECT_NO_THROW(compile(source, "alone", architecture)) << header.name << " for " << architecture;
  }
}

// What moves data must not move registers.
TEST_F(DeviceHeaders, PutsGetsPacketsAndBarriersSpillNothing) {
  const char* source = R"(
#include "tileway/barrier.cuh"
#include "tileway/bulk.cuh"
#include "tileway/packet.cuh"
using namespace tileway;
extern "C" __global__ void put(void* peer, const void* from, u64 bytes, SystemSignal* signal) {
  put_signal_by_block(peer, from, bytes, signal, 1);
}
extern "C" __global__ void put_by_warps(void* peer, const void* from, u64 bytes, SystemSignal* signal) {
  const u64 begin = threadIdx.x / 32 * bytes;
  put_signal_by_warp(static_cast<char*>(peer) + begin, static_cast<const char*>(from) + begin, bytes, signal, 1);
}
extern "C" __global__ void get(void* to, const void* peer, u64 bytes) {
  get_by_block(to, peer, bytes);
}
extern "C" __global__ void put_bulk(void* peer, const void* from, u64 bytes, SystemSignal* signal) {
  extern __shared__ __align__(128) u8 shared[];
  BulkPuts<> puts(shared);
  puts.put_nbi(peer, from, bytes);
  puts.quiet();
  if (threadIdx.x == 0) notify(signal, 1);
}
extern "C" __global__ void put_packets(void* buffer, const void* from, u64 bytes, u32 epoch) {
  put_packets_by_block(buffer, bytes, from, bytes, epoch);
}
extern "C" __global__ void wait_packets(void* to, const void* buffer, u64 bytes, u32 epoch, u64 deadline_ns,
                                        const u32* abort, Waited* answer) {
  *answer = wait_packets_by_block(to, buffer, bytes, bytes, epoch, deadline_ns, abort);
}
extern "C" __global__ void meet(SystemSignal* const* arrivals, u32 rank, u32 ranks, u32 epoch, u64 deadline_ns,
                                const u32* abort, Waited* answer) {
  *answer = barrier_by_grid(arrivals, rank, ranks, epoch, deadline_ns, abort);
}
)";
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
    const std::string report = compile(source, "moving", architecture).report;
    std::size_t kernels = 0;
    for (std::size_t at = report.find("bytes spill stores"); at != std::string::npos;
         at = report.find("bytes spill stores", at + 1))
      ++kernels;
    std::size_t clean = 0;
    const std::string none = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
    for (std::size_t at = report.find(none); at != std::string::npos; at = report.find(none, at + 1)) ++clean;
    EXPECT_EQ(kernels, 7U) << report;
    EXPECT_EQ(clean, kernels) << architecture << "\n" << report;
  }
}

TEST_F(DeviceHeaders, MoveSixteenBytesInOneAccess) {
  const std::string ptx = ptx_of(kKernel, "hand_over", "sm_90a");
  EXPECT_NE(ptx.find("ld.global.v4.u32"), std::string::npos);
  EXPECT_NE(ptx.find("st.global.v4.u32"), std::string::npos);
}

// The host allocates what kernels index.
TEST_F(DeviceHeaders, SizesOfPacketBuffersAreTheHostsToo) {
  EXPECT_EQ(packet_buffer_bytes(0), 0U);
  EXPECT_EQ(packet_buffer_bytes(1), 32U);
  EXPECT_EQ(packet_buffer_bytes(8), 32U);
  EXPECT_EQ(packet_buffer_bytes(9), 64U);
  EXPECT_EQ(packet_buffer_bytes(u64{1} << 40), u64{1} << 42);
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

// A table says functions by number, and how many operands they take is told by it.
TEST_F(DeviceHeaders, FunctionsHaveTheNumbersThatTheHostGivesThem) {
  std::string source = "#include \"tileway/pointwise.cuh\"\nextern \"C\" __global__ void none() {}\n";
  for (int i = 0; i < kFunctionCount; ++i)
    source += fmt::format("static_assert(static_cast<int>(tileway::Function::{}) == {});\n",
                          name_of(static_cast<Function>(i)), i);
  EXPECT_NO_THROW(compile(source, "functions", "sm_90a"));
  EXPECT_THROW(compile(source + "static_assert(static_cast<int>(tileway::Function::neg) == 1);", "functions", "sm_90a"),
               Error);
}

}  // namespace
}  // namespace tileway::cuda
