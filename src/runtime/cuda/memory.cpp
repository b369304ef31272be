#include "runtime/cuda/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "runtime/group.hpp"
#include "tileway/error.hpp"

namespace tileway::cuda {
namespace {

constexpr int kPosixDescriptor = 1;         // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
constexpr int kRecommendedGranularity = 1;  // CU_MEM_ALLOC_GRANULARITY_RECOMMENDED

const Driver& require_driver() {
  TW_REQUIRE(driver() != nullptr, ErrorKind::system, .where = "CUDA", .what = why_not(),
             .hint = "`tileway doctor` says what is missing");
  return *driver();
}

}  // namespace

Device::Device(int ordinal) : ordinal_(ordinal) {
  const Driver& cuda = require_driver();
  check(cuda.DeviceGet(&handle_, ordinal), "finding the GPU");
  check(cuda.DevicePrimaryCtxRetain(&context_, handle_), "opening the GPU");
  use();
}

void Device::use() const { check(driver()->CtxSetCurrent(context_), "using the GPU"); }

Device::~Device() { driver()->DevicePrimaryCtxRelease(handle_); }

DeviceMemory::DeviceMemory(std::size_t bytes) {
  check(require_driver().MemAlloc(&address_, std::max<std::size_t>(bytes, 1)), "allocating on the GPU");
}

DeviceMemory::~DeviceMemory() {
  if (address_ != 0) driver()->MemFree(address_);
}

PinnedMemory::PinnedMemory(std::size_t bytes) {
  constexpr unsigned kPortable = 1;  // CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_DEVICEMAP
  constexpr unsigned kMapped = 2;
  check(require_driver().MemHostAlloc(&memory_, bytes, kPortable | kMapped), "allocating host memory");
  std::memset(memory_, 0, bytes);
}

PinnedMemory::~PinnedMemory() { driver()->MemFreeHost(memory_); }

Address PinnedMemory::address() const {
  Address address = 0;
  check(driver()->MemHostGetDevicePointer(&address, memory_, 0), "finding host memory on the GPU");
  return address;
}

SymmetricMemory::SymmetricMemory(Group& group, const Device& device, std::size_t bytes) {
  const Driver& cuda = require_driver();
  AllocationProperties properties;
  properties.location = device.ordinal();
  std::size_t granularity = 0;
  check(cuda.MemGetAllocationGranularity(&granularity, &properties, kRecommendedGranularity), "asking for granularity");
  bytes_ = (std::max<std::size_t>(bytes, 1) + granularity - 1) / granularity * granularity;
  try {
    Allocation own = 0;
    check(cuda.MemCreate(&own, bytes_, &properties, 0), "creating memory");
    allocations_.push_back(own);
    int descriptor = -1;
    check(cuda.MemExportToShareableHandle(&descriptor, own, kPosixDescriptor, 0), "exporting memory");
    const std::vector<Piece> pieces =
        group.state().meet("allocate on GPUs", {std::to_string(bytes), std::make_shared<FileDescriptor>(descriptor)});
    for (std::size_t rank = 1; rank < pieces.size(); ++rank) {
      TW_REQUIRE(
          pieces[rank].value == pieces[0].value, ErrorKind::mismatch, .where = "symmetric memory",
          .what = "the sizes differ across ranks",
          .got = fmt::format("{} bytes on rank 0, {} bytes on rank {}", pieces[0].value, pieces[rank].value, rank));
    }
    for (int rank = 0; rank < group.size(); ++rank) {
      Allocation part = own;
      if (rank != group.rank()) {
        const auto handle = static_cast<std::intptr_t>(pieces[rank].file->get());
        check(cuda.MemImportFromShareableHandle(&part, reinterpret_cast<void*>(handle), kPosixDescriptor),
              "importing a peer's memory");
        allocations_.push_back(part);
      }
      map(part, device.ordinal());
    }
    // Nobody writes before everybody has mapped.
    group.barrier("mapped on GPUs");
  } catch (...) {
    unmap();
    throw;
  }
}

void SymmetricMemory::map(Allocation allocation, int ordinal) {
  const Driver& cuda = *driver();
  Address address = 0;
  check(cuda.MemAddressReserve(&address, bytes_, 0, 0, 0), "reserving addresses");
  mappings_.push_back(address);
  check(cuda.MemMap(address, bytes_, 0, allocation, 0), "mapping memory");
  AccessRights rights;
  rights.location = ordinal;
  check(cuda.MemSetAccess(address, bytes_, &rights, 1), "allowing access to memory");
}

void SymmetricMemory::unmap() {
  const Driver& cuda = *driver();
  for (Address address : mappings_) {
    cuda.MemUnmap(address, bytes_);
    cuda.MemAddressFree(address, bytes_);
  }
  for (Allocation allocation : allocations_) cuda.MemRelease(allocation);
}

SymmetricMemory::~SymmetricMemory() { unmap(); }

}  // namespace tileway::cuda
