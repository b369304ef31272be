// The CUDA driver, opened when the program runs: one build serves machines with and without a GPU, and needs no CUDA
// toolkit. The types are those of the driver's binary interface, which does not change.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tileway::cuda {

using Result = int;
using DeviceHandle = int;
using Context = struct CUctx_st*;
using Module = struct CUmod_st*;
using Function = struct CUfunc_st*;
using Stream = struct CUstream_st*;
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
  Result (*DevicePrimaryCtxRelease)(DeviceHandle device);
  Result (*CtxSetCurrent)(Context context);
  Result (*CtxSynchronize)();
  Result (*ModuleLoadData)(Module* module, const void* image);
  Result (*ModuleUnload)(Module module);
  Result (*ModuleGetFunction)(Function* function, Module module, const char* name);
  Result (*LaunchKernel)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                         unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** arguments,
                         void** extra);
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

}  // namespace tileway::cuda
