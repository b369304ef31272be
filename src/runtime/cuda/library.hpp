// A shared library that may not be there.
#pragma once

#include <string>
#include <vector>

namespace tileway::cuda {

// Opened when it is first asked for and never closed: threads of the library may outlive main.
class Library {
 public:
  // Tries the files in turn.
  explicit Library(const std::vector<std::string>& files);
  bool found() const { return handle_ != nullptr; }
  // Where it lies, or why it could not be opened.
  const std::string& where() const { return where_; }
  // Null where there is no such function.
  void* find(const char* function) const;

 private:
  void* handle_ = nullptr;
  std::string where_;
};

}  // namespace tileway::cuda
