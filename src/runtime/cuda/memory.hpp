// Symmetric memory on GPUs: each rank's part lies on its GPU and is mapped by every other rank.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "runtime/cuda/driver.hpp"
#include "tileway/group.hpp"

namespace tileway::cuda {

// The use of one GPU by this process: its primary context, which other libraries share. Makes it current on the thread
// that creates it. Throws Error (system) where there is no such GPU.
class Device {
 public:
  explicit Device(int ordinal);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device();
  int ordinal() const { return ordinal_; }
  // Makes it current on the calling thread.
  void use() const;

 private:
  int ordinal_;
  DeviceHandle handle_ = 0;
  Context context_ = nullptr;
};

// Memory on a device, or of the host where all devices see it: the owner frees it.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept : address_(std::exchange(other.address_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  ~DeviceMemory();
  Address address() const { return address_; }

 private:
  Address address_ = 0;
};
class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes);  // zeroed
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory();
  void* data() const { return memory_; }
  Address address() const;  // as devices see it

 private:
  void* memory_ = nullptr;
};

// Made and freed by all ranks of a group together. Memory is created by the driver's virtual memory management, its
// descriptors travel through the rendezvous, and every rank maps every part; so it does not matter what a process calls
// its GPUs, or whether it sees its peers' at all. Sizes are rounded up to what the driver grants.
class SymmetricMemory {
 public:
  // Collective. Throws Error (mismatch) on every rank when the sizes differ, and Error (system) with the driver's
  // reason where a peer's memory cannot be mapped.
  SymmetricMemory(Group& group, const Device& device, std::size_t bytes);
  SymmetricMemory(const SymmetricMemory&) = delete;
  SymmetricMemory& operator=(const SymmetricMemory&) = delete;
  ~SymmetricMemory();

  // The address of a rank's part, for kernels of this process.
  Address on(int rank) const { return mappings_[rank]; }
  std::size_t bytes() const { return bytes_; }

 private:
  void map(Allocation allocation, int ordinal);
  void unmap();

  std::size_t bytes_ = 0;
  std::vector<Allocation> allocations_;  // this rank's own, then the peers'
  std::vector<Address> mappings_;        // by rank
};

}  // namespace tileway::cuda
