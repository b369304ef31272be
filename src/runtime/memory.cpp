#include "runtime/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

namespace tileway {
namespace {

[[noreturn]] void refuse(const char* what, std::size_t bytes) {
  const bool files = errno == EMFILE || errno == ENFILE;
  throw Error(ErrorKind::system,
              {.where = "symmetric memory of " + std::to_string(bytes) + " bytes",
               .what = what,
               .got = std::strerror(errno),
               .hint = files ? "Raise the limit on open files (ulimit -n)" : "Free memory, or use smaller tensors"});
}

}  // namespace

SymmetricMemory::Mapping::~Mapping() {
  if (data != nullptr) munmap(data, bytes);
}

FileDescriptor make_shared_file(std::size_t bytes) {
  FileDescriptor file(memfd_create("tileway", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) refuse("cannot create shared memory", bytes);
  if (ftruncate(file.get(), static_cast<off_t>(std::max<std::size_t>(bytes, 1))) != 0)
    refuse("cannot size shared memory", bytes);
  fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return file;
}

std::shared_ptr<SymmetricMemory::Mapping> map_shared_file(const FileDescriptor& file, std::size_t bytes) {
  // A file that is mapped exists, so its number is no other's.
  static std::mutex mutex;
  static std::map<std::pair<dev_t, ino_t>, std::weak_ptr<SymmetricMemory::Mapping>> known;
  struct stat info {};
  if (fstat(file.get(), &info) != 0) refuse("cannot look at shared memory", bytes);
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<SymmetricMemory::Mapping>& here = known[{info.st_dev, info.st_ino}];
  if (auto mapping = here.lock()) return mapping;
  const std::size_t mapped = std::max<std::size_t>(bytes, 1);
  void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) refuse("cannot map shared memory", bytes);
  auto mapping = std::make_shared<SymmetricMemory::Mapping>(data, mapped, bytes);
  here = mapping;
  return mapping;
}

SymmetricMemory::SymmetricMemory(std::vector<std::shared_ptr<Mapping>> mappings) : mappings_(std::move(mappings)) {}
SymmetricMemory::SymmetricMemory(SymmetricMemory&&) noexcept = default;
SymmetricMemory& SymmetricMemory::operator=(SymmetricMemory&&) noexcept = default;
SymmetricMemory::~SymmetricMemory() = default;

std::span<std::byte> SymmetricMemory::on(int rank) const {
  const Mapping& mapping = *mappings_.at(rank);
  return {static_cast<std::byte*>(mapping.data), mapping.size};
}

}  // namespace tileway
