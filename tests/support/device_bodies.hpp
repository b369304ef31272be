// Bodies of GPU kernels, compiled for this machine from the device headers and run by one thread that is each worker in
// turn: those whose workers do not meet, of elements that need no instruction of a GPU.
#pragma once

#include <cstdint>
#include <string>

namespace tileway::testing {

// What a kernel would be given; addresses of a BodyRow, of Views, reads first, and of a Failure.
struct DeviceTask {
  const void* body;
  const void* views;
  std::uint32_t reads;
  std::uint32_t writes;
  std::uint32_t task;
  void* failure;
  std::uint32_t* abort;
};

// A variant as KernelText names it. False, and nothing is done, where it is none of these.
bool run_device_body(const std::string& variant, const DeviceTask& task);

}  // namespace tileway::testing
