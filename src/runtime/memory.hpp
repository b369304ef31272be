// Shared memory as files without a name, passed from rank to rank as descriptors.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/file_descriptor.hpp"
#include "tileway/group.hpp"

namespace tileway {

struct SymmetricMemory::Mapping {
  Mapping(void* d, std::size_t b, std::size_t s) : data(d), bytes(b), size(s) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();
  void* data;
  std::size_t bytes;  // mapped
  std::size_t size;   // asked for
};

// Zeroed, sealed against a change of size. Throws Error (system).
FileDescriptor make_shared_file(std::size_t bytes);
// One mapping a process, however often it is asked for: ranks as threads see each other's memory at one address, so
// that a debugger or a sanitizer knows it for the same.
std::shared_ptr<SymmetricMemory::Mapping> map_shared_file(const FileDescriptor& file, std::size_t bytes);

}  // namespace tileway
