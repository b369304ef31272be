// A rank's table in device memory, with what host and device tell each other there, and the kernel's argument, which
// says where all of it lies.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include "exec/cuda/brought.hpp"
#include "exec/cuda/table.hpp"
#include "runtime/cuda/memory.hpp"

namespace tileway::cuda {

class DeviceTable {
 public:
  struct Surroundings {
    int blocks;          // of the kernel, as many as the table has lanes or more; the others only serve streams
    Address runs_begun;  // which peers may read
    Address failure;     // in host memory
    std::chrono::nanoseconds patience;
    std::chrono::nanoseconds delay;
    bool trace;
    std::size_t most_copies;  // of memory that may yet be brought
  };
  DeviceTable(const Table& table, const BroughtCopies& copies, const Surroundings& surroundings);

  const Launch& launch() const { return launch_; }
  Address abort_flag() const { return launch_.control + offsetof(Control, abort); }
  Address gate(u32 task_row) const { return launch_.gates + task_row * sizeof(StreamGate); }
  // The table differs from the one before in where things lie and in nothing else.
  void write_places(const Table& table, const BroughtCopies& copies);
  // As it lies on the device. `sizes`: a table of the same sizes.
  Table read(const Table& sizes) const;
  // By task row, of the last run, where it is traced.
  std::vector<EventRow> events(std::size_t task_rows) const;

 private:
  std::optional<DeviceMemory> memory_;
  Launch launch_{};
};

}  // namespace tileway::cuda
