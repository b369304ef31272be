#include "runtime/cuda/memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

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
  static std::mutex mutex;
  static std::map<int, Context> open;
  const Driver& cuda = require_driver();
  const std::lock_guard lock(mutex);
  Context& context = open[ordinal];
  if (context == nullptr) {
    DeviceHandle handle = 0;
    check(cuda.DeviceGet(&handle, ordinal), "finding the GPU");
    check(cuda.DevicePrimaryCtxRetain(&context, handle), "opening the GPU");
  }
  context_ = context;
  use();
}

void Device::use() const { check(driver()->CtxSetCurrent(context_), "using the GPU"); }

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

SharedHostMemory::SharedHostMemory(Group& group, std::size_t bytes)
    : memory_(group.allocate(bytes)), rank_(group.rank()) {
  constexpr unsigned kPortable = 1;  // CU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_DEVICEMAP
  constexpr unsigned kMapped = 2;
  const Driver& cuda = require_driver();
  check(cuda.MemHostRegister(on(rank_), bytes, kPortable | kMapped), "registering host memory");
  const Result result = cuda.MemHostGetDevicePointer(&address_, on(rank_), 0);
  if (result != 0) cuda.MemHostUnregister(on(rank_));
  check(result, "finding host memory on the GPU");
}

SharedHostMemory::~SharedHostMemory() { driver()->MemHostUnregister(on(rank_)); }

SymmetricMemory::SymmetricMemory(Group& group, const Device& device, std::size_t bytes, Seen seen)
    : mappings_(static_cast<std::size_t>(group.size()), 0) {
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
    Piece piece{std::to_string(bytes), nullptr};
    if (seen == Seen::by_all) {
      int descriptor = -1;
      check(cuda.MemExportToShareableHandle(&descriptor, own, kPosixDescriptor, 0), "exporting memory");
      piece.file = std::make_shared<FileDescriptor>(descriptor);
    }
    const std::vector<Piece> pieces = group.state().meet("allocate on GPUs", std::move(piece));
    for (std::size_t rank = 1; rank < pieces.size(); ++rank) {
      TW_REQUIRE(
          pieces[rank].value == pieces[0].value, ErrorKind::mismatch, .where = "symmetric memory",
          .what = "the sizes differ across ranks",
          .got = fmt::format("{} bytes on rank 0, {} bytes on rank {}", pieces[0].value, pieces[rank].value, rank));
    }
    map(group.rank(), own, device);
    if (seen == Seen::by_all) map_peers(group, device, pieces);
  } catch (...) {
    unmap();
    throw;
  }
}

// Whether a GPU can use another's memory shows when it is mapped. All ranks learn which could not, and throw alike.
void SymmetricMemory::map_peers(Group& group, const Device& device, const std::vector<Piece>& pieces) {
  std::vector<int> missing;
  std::string reason;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) continue;
    try {
      Allocation part = 0;
      const auto handle = static_cast<std::intptr_t>(pieces[rank].file->get());
      check(driver()->MemImportFromShareableHandle(&part, reinterpret_cast<void*>(handle), kPosixDescriptor),
            "importing a peer's memory");
      allocations_.push_back(part);
      map(rank, part, device);
    } catch (const Error& error) {
      missing.push_back(rank);
      reason = error.what();
    }
  }
  std::string mine;
  if (!missing.empty())
    mine = fmt::format("rank {} ({}) cannot use the memory of rank {}: {}", group.rank(),
                       gpus().at(static_cast<std::size_t>(device.ordinal())).uuid, fmt::join(missing, ", "), reason);
  // Nobody writes before everybody has mapped.
  std::vector<std::string> all = group.all_gather(mine, "mapped on GPUs");
  std::erase_if(all, [](const std::string& text) { return text.empty(); });
  TW_REQUIRE(all.empty(), ErrorKind::system, .where = "memory of GPUs",
             .what = "not every GPU can use the others' memory, and the plan needs that",
             .expected = "peer access among all of them", .got = fmt::format("{}", fmt::join(all, "; ")),
             .hint = "The schedule `collective` leaves all but an all_to_all_v to NCCL, which needs none");
}

void SymmetricMemory::map(int rank, Allocation allocation, const Device& device) {
  const Driver& cuda = *driver();
  Address address = 0;
  check(cuda.MemAddressReserve(&address, bytes_, 0, 0, 0), "reserving addresses");
  mappings_[rank] = address;
  check(cuda.MemMap(address, bytes_, 0, allocation, 0), "mapping memory");
  AccessRights rights;
  rights.location = device.ordinal();
  check(cuda.MemSetAccess(address, bytes_, &rights, 1), "allowing access to memory");
}

void SymmetricMemory::unmap() {
  const Driver& cuda = *driver();
  for (Address address : mappings_) {
    if (address == 0) continue;
    cuda.MemUnmap(address, bytes_);
    cuda.MemAddressFree(address, bytes_);
  }
  for (Allocation allocation : allocations_) cuda.MemRelease(allocation);
}

SymmetricMemory::~SymmetricMemory() { unmap(); }

}  // namespace tileway::cuda
