// The CUDA driver, opened when the program runs: one build serves machines with and without a GPU, and needs no CUDA
// toolkit. The types are those of the driver's binary interface, which does not change.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// As the driver's own header names them.
struct CUctx_st;
struct CUmod_st;
struct CUfunc_st;
struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace tileway::cuda {

using Result = int;
using DeviceHandle = int;
using Context = CUctx_st*;
using Module = CUmod_st*;
using Function = CUfunc_st*;
using Stream = CUstream_st*;
using Event = CUevent_st*;
using Graph = CUgraph_st*;
using GraphExecutable = CUgraphExec_st*;
using Address = std::uint64_t;     // on a device, as this process sees it
using Allocation = std::uint64_t;  // memory without an address
using Uuid = std::array<unsigned char, 16>;

// Where memory lies, and how it may be handed on: CUmemAllocationProp.
struct AllocationProperties {
  int type = 1;           // pinned
  int handle_types = 1;   // POSIX file descriptors
  int location_type = 1;  // a device
  int location = 0;
  void* reserved = nullptr;
  unsigned char flags[8] = {};
};
// Who may use a mapping, and how: CUmemAccessDesc.
struct AccessRights {
  int location_type = 1;  // a device
  int location = 0;
  int flags = 3;  // read and write
};

// CUlaunchConfig, with its attributes.
struct LaunchAttribute {
  int id = 2;  // cooperative: all blocks are resident, or the launch is refused
  int pad = 0;
  int value = 1;
  char rest[60] = {};
};
struct LaunchConfiguration {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned block_x = 1, block_y = 1, block_z = 1;
  unsigned shared_bytes = 0;
  Stream stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};
// A copy of `height` rows of `width` bytes between places on devices: CUDA_MEMCPY2D.
struct Copy2D {
  std::size_t from_x = 0, from_y = 0;
  int from_type = 2;  // device
  const void* from_host = nullptr;
  Address from = 0;
  void* from_array = nullptr;
  std::size_t from_pitch = 0;
  std::size_t to_x = 0, to_y = 0;
  int to_type = 2;
  void* to_host = nullptr;
  Address to = 0;
  void* to_array = nullptr;
  std::size_t to_pitch = 0;
  std::size_t width = 0, height = 0;
};
// What a stream does with a word in memory: CUstreamBatchMemOpParams, of which only these two are used.
struct StreamOperation {
  enum : int { wait = 1, write = 2 };
  int operation = write;
  Address address = 0;
  std::uint64_t value = 0;  // 32 bits of it
  unsigned flags = 0;       // of a wait: 1 until equal
  Address alias = 0;
  std::uint64_t rest[1] = {};  // the union is six words
};

// The functions that are used, by their names without the prefix. All return a Result, 0 for success.
struct Driver {
  Result (*Init)(unsigned flags);
  Result (*DriverGetVersion)(int* version);
  Result (*GetErrorString)(Result result, const char** text);
  Result (*DeviceGetCount)(int* count);
  Result (*DeviceGet)(DeviceHandle* device, int ordinal);
  Result (*DeviceGetName)(char* name, int length, DeviceHandle device);
  Result (*DeviceGetUuid)(Uuid* uuid, DeviceHandle device);
  Result (*DeviceGetAttribute)(int* value, int attribute, DeviceHandle device);
  Result (*DeviceTotalMem)(std::size_t* bytes, DeviceHandle device);
  Result (*DeviceCanAccessPeer)(int* can, DeviceHandle device, DeviceHandle peer);
  Result (*DevicePrimaryCtxRetain)(Context* context, DeviceHandle device);
  Result (*CtxSetCurrent)(Context context);
  Result (*CtxSynchronize)();
  Result (*ModuleLoadData)(Module* module, const void* image);
  Result (*ModuleUnload)(Module module);
  Result (*ModuleGetFunction)(Function* function, Module module, const char* name);
  Result (*LaunchKernel)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                         unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** arguments,
                         void** extra);
  Result (*LaunchKernelEx)(const LaunchConfiguration* configuration, Function function, void** arguments, void** extra);
  Result (*FuncLoad)(Function function);
  Result (*FuncSetAttribute)(Function function, int attribute, int value);
  Result (*OccupancyMaxActiveBlocksPerMultiprocessor)(int* blocks, Function function, int block_threads,
                                                      std::size_t shared_bytes);
  Result (*ModuleGetGlobal)(Address* address, std::size_t* bytes, Module module, const char* name);
  Result (*StreamCreate)(Stream* stream, unsigned flags);
  Result (*StreamDestroy)(Stream stream);
  Result (*StreamQuery)(Stream stream);
  Result (*StreamSynchronize)(Stream stream);
  Result (*StreamWaitEvent)(Stream stream, Event event, unsigned flags);
  Result (*StreamBatchMemOp)(Stream stream, unsigned count, StreamOperation* operations, unsigned flags);
  Result (*StreamIsCapturing)(Stream stream, int* status);
  Result (*StreamBeginCapture)(Stream stream, int mode);
  Result (*StreamEndCapture)(Stream stream, Graph* graph);
  Result (*GraphInstantiate)(GraphExecutable* executable, Graph graph, unsigned long long flags);
  Result (*GraphUpload)(GraphExecutable executable, Stream stream);
  Result (*GraphLaunch)(GraphExecutable executable, Stream stream);
  Result (*GraphDestroy)(Graph graph);
  Result (*GraphExecDestroy)(GraphExecutable executable);
  Result (*EventCreate)(Event* event, unsigned flags);
  Result (*EventRecord)(Event event, Stream stream);
  Result (*EventQuery)(Event event);
  Result (*EventSynchronize)(Event event);
  Result (*EventElapsedTime)(float* milliseconds, Event begin, Event end);
  Result (*EventDestroy)(Event event);
  Result (*PointerGetAttribute)(void* value, int attribute, Address address);
  Result (*MemAlloc)(Address* address, std::size_t bytes);
  Result (*MemFree)(Address address);
  Result (*MemHostAlloc)(void** memory, std::size_t bytes, unsigned flags);
  Result (*MemHostGetDevicePointer)(Address* address, void* memory, unsigned flags);
  Result (*MemFreeHost)(void* memory);
  Result (*MemHostRegister)(void* memory, std::size_t bytes, unsigned flags);
  Result (*MemHostUnregister)(void* memory);
  Result (*MemcpyAsync)(Address to, Address from, std::size_t bytes, Stream stream);
  Result (*Memcpy2DAsync)(const Copy2D* copy, Stream stream);
  Result (*MemcpyHtoDAsync)(Address to, const void* from, std::size_t bytes, Stream stream);
  Result (*MemcpyDtoHAsync)(void* to, Address from, std::size_t bytes, Stream stream);
  Result (*MemGetAllocationGranularity)(std::size_t* bytes, const AllocationProperties* properties, int option);
  Result (*MemCreate)(Allocation* allocation, std::size_t bytes, const AllocationProperties* properties,
                      unsigned long long flags);
  Result (*MemRelease)(Allocation allocation);
  Result (*MemAddressReserve)(Address* address, std::size_t bytes, std::size_t alignment, Address wanted,
                              unsigned long long flags);
  Result (*MemAddressFree)(Address address, std::size_t bytes);
  Result (*MemMap)(Address address, std::size_t bytes, std::size_t offset, Allocation allocation,
                   unsigned long long flags);
  Result (*MemUnmap)(Address address, std::size_t bytes);
  Result (*MemSetAccess)(Address address, std::size_t bytes, const AccessRights* rights, std::size_t count);
  Result (*MemExportToShareableHandle)(void* handle, Allocation allocation, int handle_type, unsigned long long flags);
  Result (*MemImportFromShareableHandle)(Allocation* allocation, void* handle, int handle_type);
  Result (*MemcpyHtoD)(Address to, const void* from, std::size_t bytes);
  Result (*MemcpyDtoH)(void* to, Address from, std::size_t bytes);
  Result (*MemsetD8)(Address to, unsigned char value, std::size_t bytes);
  Result (*MemsetD2D8Async)(Address to, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height,
                            Stream stream);
  Result (*TensorMapEncodeTiled)(void* map, int type, std::uint32_t rank, Address first, const std::uint64_t* extents,
                                 const std::uint64_t* strides, const std::uint32_t* load, const std::uint32_t* steps,
                                 int interleave, int swizzle, int promotion, int fill);
};

// Null where there is no driver, or no GPU; `why_not()` says which.
const Driver* driver();
const std::string& why_not();
// Throws Error (system) naming the step and the driver's reason.
void check(Result result, const char* step);

struct Gpu {
  int ordinal = 0;  // as this process counts them
  std::string name{};
  std::string uuid{};  // what it is called everywhere
  int major = 0;       // compute capability
  int minor = 0;
  int multiprocessors = 0;
  std::size_t bytes = 0;
  std::vector<bool> reaches{};  // by ordinal: whether it can use that GPU's memory
};
// Empty where driver() is null.
std::vector<Gpu> gpus();
// "sm_90a": the architecture whose own instructions a GPU understands.
std::string architecture_of(const Gpu& gpu);

// What GPUs there are. Asked in a process of its own, unless this one has opened the driver: one that has cannot fork
// ranks that use it.
struct Fleet {
  int gpus = 0;
  int multiprocessors = 0;      // of the GPU with fewest
  bool linked = true;           // each says that it can use the others' memory
  std::array<char, 64> name{};  // of the first GPU
};
Fleet fleet();

}  // namespace tileway::cuda
