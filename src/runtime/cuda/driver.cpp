#include "runtime/cuda/driver.hpp"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "runtime/cuda/library.hpp"
#include "tileway/error.hpp"

namespace tileway::cuda {
namespace {

constexpr int kMultiprocessorCount = 16;  // CUdevice_attribute
constexpr Result kNotInitialized = 3;
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;

struct Loaded {
  Driver driver{};
  bool usable = false;
  std::string why_not;

  Loaded() {
    static const Library library({"libcuda.so.1"});
    if (!library.found()) {
      why_not = "no CUDA driver: " + library.where();
      return;
    }
    const auto take = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.find(name));
      if (!function && why_not.empty()) why_not = fmt::format("the CUDA driver is too old: it lacks {}", name);
    };
    take(driver.Init, "cuInit");
    take(driver.DriverGetVersion, "cuDriverGetVersion");
    take(driver.GetErrorString, "cuGetErrorString");
    take(driver.DeviceGetCount, "cuDeviceGetCount");
    take(driver.DeviceGet, "cuDeviceGet");
    take(driver.DeviceGetName, "cuDeviceGetName");
    take(driver.DeviceGetUuid, "cuDeviceGetUuid_v2");
    take(driver.DeviceGetAttribute, "cuDeviceGetAttribute");
    take(driver.DeviceTotalMem, "cuDeviceTotalMem_v2");
    take(driver.DeviceCanAccessPeer, "cuDeviceCanAccessPeer");
    take(driver.DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
    take(driver.CtxSetCurrent, "cuCtxSetCurrent");
    take(driver.CtxSynchronize, "cuCtxSynchronize");
    take(driver.ModuleLoadData, "cuModuleLoadData");
    take(driver.ModuleUnload, "cuModuleUnload");
    take(driver.ModuleGetFunction, "cuModuleGetFunction");
    take(driver.LaunchKernel, "cuLaunchKernel");
    take(driver.LaunchKernelEx, "cuLaunchKernelEx");
    take(driver.FuncLoad, "cuFuncLoad");
    take(driver.FuncSetAttribute, "cuFuncSetAttribute");
    take(driver.OccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    take(driver.ModuleGetGlobal, "cuModuleGetGlobal_v2");
    take(driver.StreamCreate, "cuStreamCreate");
    take(driver.StreamDestroy, "cuStreamDestroy_v2");
    take(driver.StreamQuery, "cuStreamQuery");
    take(driver.StreamSynchronize, "cuStreamSynchronize");
    take(driver.StreamWaitEvent, "cuStreamWaitEvent");
    take(driver.StreamBatchMemOp, "cuStreamBatchMemOp_v2");
    take(driver.StreamIsCapturing, "cuStreamIsCapturing");
    take(driver.StreamBeginCapture, "cuStreamBeginCapture_v2");
    take(driver.StreamEndCapture, "cuStreamEndCapture");
    take(driver.GraphInstantiate, "cuGraphInstantiateWithFlags");
    take(driver.GraphUpload, "cuGraphUpload");
    take(driver.GraphLaunch, "cuGraphLaunch");
    take(driver.GraphDestroy, "cuGraphDestroy");
    take(driver.GraphExecDestroy, "cuGraphExecDestroy");
    take(driver.EventCreate, "cuEventCreate");
    take(driver.EventRecord, "cuEventRecord");
    take(driver.EventQuery, "cuEventQuery");
    take(driver.EventSynchronize, "cuEventSynchronize");
    take(driver.EventElapsedTime, "cuEventElapsedTime");
    take(driver.EventDestroy, "cuEventDestroy_v2");
    take(driver.PointerGetAttribute, "cuPointerGetAttribute");
    take(driver.MemAlloc, "cuMemAlloc_v2");
    take(driver.MemFree, "cuMemFree_v2");
    take(driver.MemHostAlloc, "cuMemHostAlloc");
    take(driver.MemHostGetDevicePointer, "cuMemHostGetDevicePointer_v2");
    take(driver.MemFreeHost, "cuMemFreeHost");
    take(driver.MemHostRegister, "cuMemHostRegister_v2");
    take(driver.MemHostUnregister, "cuMemHostUnregister");
    take(driver.MemcpyAsync, "cuMemcpyAsync");
    take(driver.Memcpy2DAsync, "cuMemcpy2DAsync_v2");
    take(driver.MemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2");
    take(driver.MemcpyDtoHAsync, "cuMemcpyDtoHAsync_v2");
    take(driver.MemGetAllocationGranularity, "cuMemGetAllocationGranularity");
    take(driver.MemCreate, "cuMemCreate");
    take(driver.MemRelease, "cuMemRelease");
    take(driver.MemAddressReserve, "cuMemAddressReserve");
    take(driver.MemAddressFree, "cuMemAddressFree");
    take(driver.MemMap, "cuMemMap");
    take(driver.MemUnmap, "cuMemUnmap");
    take(driver.MemSetAccess, "cuMemSetAccess");
    take(driver.MemExportToShareableHandle, "cuMemExportToShareableHandle");
    take(driver.MemImportFromShareableHandle, "cuMemImportFromShareableHandle");
    take(driver.MemcpyHtoD, "cuMemcpyHtoD_v2");
    take(driver.MemcpyDtoH, "cuMemcpyDtoH_v2");
    take(driver.MemsetD8, "cuMemsetD8_v2");
    take(driver.MemsetD2D8Async, "cuMemsetD2D8Async");
    take(driver.TensorMapEncodeTiled, "cuTensorMapEncodeTiled");
    if (!why_not.empty()) return;
    // Streams share the device's queues, and one that waits would hold up whatever shares its queue; so as many queues
    // as there can be, unless the user has said otherwise.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    int count = 0;
    if (const Result result = driver.Init(0); result != 0) {
      why_not = "the CUDA driver does not start: " + text(result);
    } else if (driver.DeviceGetCount(&count) != 0 || count == 0) {
      why_not = "the CUDA driver sees no GPU";
    }
    usable = why_not.empty();
  }

  std::string text(Result result) const {
    const char* words = nullptr;
    if (!driver.GetErrorString || driver.GetErrorString(result, &words) != 0 || !words)
      return fmt::format("{}", result);
    return fmt::format("{} ({})", words, result);
  }
};

std::atomic<bool> opened{false};  // whether this process, or one that it was forked from, has tried to

const Loaded& loaded() {
  opened = true;
  static Loaded once;  // not const: tests take functions away, or put faulty ones in their place
  return once;
}

std::string uuid_text(const Uuid& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    const bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    text += fmt::format("{}{:02x}", dash ? "-" : "", uuid[i]);
  }
  return text;
}

}  // namespace

const Driver* driver() { return loaded().usable ? &loaded().driver : nullptr; }
const std::string& why_not() { return loaded().why_not; }

void check(Result result, const char* step) {
  TW_REQUIRE(result == 0, ErrorKind::system, .where = "CUDA", .what = fmt::format("{} failed", step),
             .got = loaded().text(result),
             .hint = result == kNotInitialized
                         ? "a process that has used the driver cannot fork ranks that use it: start those first"
                         : "");
}

std::vector<Gpu> gpus() {
  std::vector<Gpu> all;
  const Driver* cuda = driver();
  if (!cuda) return all;
  int count = 0;
  check(cuda->DeviceGetCount(&count), "counting the GPUs");
  const auto attribute = [&](int which, DeviceHandle device) {
    int value = 0;
    check(cuda->DeviceGetAttribute(&value, which, device), "asking what a GPU is");
    return value;
  };
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    Gpu gpu{.ordinal = ordinal};
    DeviceHandle device = 0;
    check(cuda->DeviceGet(&device, ordinal), "finding a GPU");
    std::array<char, 256> name{};
    check(cuda->DeviceGetName(name.data(), static_cast<int>(name.size()), device), "asking a GPU's name");
    gpu.name = name.data();
    Uuid uuid{};
    check(cuda->DeviceGetUuid(&uuid, device), "asking which GPU it is");
    gpu.uuid = uuid_text(uuid);
    gpu.major = attribute(kCapabilityMajor, device);
    gpu.minor = attribute(kCapabilityMinor, device);
    gpu.multiprocessors = attribute(kMultiprocessorCount, device);
    check(cuda->DeviceTotalMem(&gpu.bytes, device), "asking a GPU's memory");
    for (int peer = 0; peer < count; ++peer) {
      DeviceHandle other = 0;
      int can = peer == ordinal;
      check(cuda->DeviceGet(&other, peer), "finding a GPU");
      if (peer != ordinal) check(cuda->DeviceCanAccessPeer(&can, device, other), "asking which GPUs are linked");
      gpu.reaches.push_back(can != 0);
    }
    all.push_back(std::move(gpu));
  }
  return all;
}

std::string architecture_of(const Gpu& gpu) {
  return fmt::format("sm_{}{}{}", gpu.major, gpu.minor, gpu.major >= 9 ? "a" : "");
}

namespace {

Fleet count() {
  Fleet found;
  for (const Gpu& gpu : gpus()) {
    if (found.gpus == 0) gpu.name.copy(found.name.data(), found.name.size() - 1);
    found.multiprocessors =
        found.gpus++ == 0 ? gpu.multiprocessors : std::min(found.multiprocessors, gpu.multiprocessors);
    found.linked = found.linked && std::find(gpu.reaches.begin(), gpu.reaches.end(), false) == gpu.reaches.end();
  }
  return found;
}

}  // namespace

Fleet fleet() {
  if (opened) return count();
  int ends[2];
  TW_REQUIRE(pipe(ends) == 0, ErrorKind::system, .where = "CUDA", .what = "no pipe", .got = std::strerror(errno));
  const pid_t child = fork();
  TW_REQUIRE(child >= 0, ErrorKind::system, .where = "CUDA", .what = "no process", .got = std::strerror(errno));
  if (child == 0) {
    bool told = false;
    try {
      const Fleet found = count();
      told = ::write(ends[1], &found, sizeof(found)) == sizeof(found);
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());  // and as if there were no GPU
    }
    _exit(told ? 0 : 1);
  }
  close(ends[1]);
  Fleet found;
  if (::read(ends[0], &found, sizeof(found)) != sizeof(found)) found = {};
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return found;
}

}  // namespace tileway::cuda
