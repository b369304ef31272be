// Symmetric memory on GPUs: each rank's part lies on its GPU and is mapped by every other rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/cuda/driver.hpp"
#include "runtime/rendezvous.hpp"
#include "tileway/group.hpp"

namespace tileway::cuda {

// The use of one GPU by this process: its primary context, which other libraries share. It stays open until the process
// ends: opening it takes a tenth of a second. Makes it current on the thread that creates it. Throws Error (system)
// where there is no such GPU.
class Device {
 public:
  explicit Device(int ordinal);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  int ordinal() const { return ordinal_; }
  // Makes it current on the calling thread.
  void use() const;

 private:
  int ordinal_;
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

// Host memory that all ranks of a group see; the device of each sees the rank's own part. Zeroed when it is made.
class SharedHostMemory {
 public:
  // Collective. Throws Error (mismatch) on every rank when the sizes differ.
  SharedHostMemory(Group& group, std::size_t bytes);
  SharedHostMemory(const SharedHostMemory&) = delete;
  SharedHostMemory& operator=(const SharedHostMemory&) = delete;
  ~SharedHostMemory();

  std::byte* on(int rank) const { return memory_.on(rank).data(); }
  Address address() const { return address_; }  // of this rank's part, as its device sees it

 private:
  tileway::SymmetricMemory memory_;
  int rank_;
  Address address_ = 0;
};

// Made and freed by all ranks of a group together. Memory is created by the driver's virtual memory management, its
// descriptors travel through the rendezvous, and every rank maps every part; so it does not matter what a process calls
// its GPUs, or whether it sees its peers' at all. Sizes are rounded up to what the driver grants.
class SymmetricMemory {
 public:
  // Who sees a rank's part. nobody else: nothing of a peer's is mapped, for GPUs that cannot or need not reach others.
  enum class Seen : std::uint8_t { by_all, by_nobody_else };

  // Collective. Throws Error (mismatch) on every rank when the sizes differ, and Error (system) on every rank, with the
  // driver's reasons, where any of them cannot map a peer's memory.
  SymmetricMemory(Group& group, const Device& device, std::size_t bytes, Seen seen = Seen::by_all);
  SymmetricMemory(const SymmetricMemory&) = delete;
  SymmetricMemory& operator=(const SymmetricMemory&) = delete;
  ~SymmetricMemory();

  // The address of a rank's part, for kernels of this process; 0 for a peer's that is not mapped.
  Address on(int rank) const { return mappings_[rank]; }
  std::size_t bytes() const { return bytes_; }

 private:
  // Collective. `pieces`: what each rank has brought, with the descriptor of its part.
  void map_peers(Group& group, const Device& device, const std::vector<Piece>& pieces);
  void map(int rank, Allocation allocation, const Device& device);
  void unmap();

  std::size_t bytes_ = 0;
  std::vector<Allocation> allocations_;  // this rank's own, then the peers'
  std::vector<Address> mappings_;        // by rank; 0 where there is none
};

}  // namespace tileway::cuda
