#include "runtime/cuda/library.hpp"

#include <dlfcn.h>

namespace tileway::cuda {

Library::Library(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_) {
      where_ = file;
      return;
    }
    const char* reason = dlerror();
    if (where_.empty() && reason) where_ = reason;
  }
}

void* Library::find(const char* function) const { return handle_ ? dlsym(handle_, function) : nullptr; }

}  // namespace tileway::cuda
