// The device headers in a program that has nothing else of Tileway, compiled by nvcc: examples/user_kernel.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace tileway {
namespace {

namespace fs = std::filesystem;

// What a command wrote to both of its outputs, and its exit status.
std::pair<std::string, int> output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {"it could not be started", -1};
  char buffer[4096];
  while (const std::size_t bytes = std::fread(buffer, 1, sizeof(buffer), pipe)) text.append(buffer, bytes);
  return {text, pclose(pipe)};
}

TEST(UserKernel, IsCompiledByNvccForEveryArchitecture) {
  const std::string nvcc = TILEWAY_NVCC;
  if (nvcc.empty())
    GTEST_SKIP() << "no nvcc was found when this was built; NVRTC compiles the same headers in DeviceHeaders";
  const fs::path root = fs::path(TILEWAY_TEST_SOURCE).parent_path();
  const fs::path out = fs::temp_directory_path() / fmt::format("tileway-user-kernel-{}", getpid());
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
    const auto [text, status] = output_of(fmt::format(
        "'{}' -std=c++20 -arch={} -Werror all-warnings -Xptxas -v -cubin -I '{}' '{}' -o '{}'", nvcc, architecture,
        (root / "device").string(), (root / "examples/user_kernel/main.cu").string(), out.string()));
    EXPECT_EQ(status, 0) << text;
    EXPECT_NE(text.find("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"), std::string::npos) << text;
    EXPECT_TRUE(fs::remove(out)) << architecture;
  }
}

}  // namespace
}  // namespace tileway
