// Memory with values in it, for explorations that compute.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "exec/host/explore/stepper.hpp"
#include "exec/host/kernels/kernels.hpp"
#include "tileway/explore.hpp"

namespace tileway::host {

// Bodies work on copies: what a task declared to read is copied when its stage comes, and nothing else can be seen;
// what it declared to write is written to a copy amid guards and from there to memory when it stores. Memory holds
// poison (every byte 0xff: NaN, -1) until something is written.
class Values {
 public:
  // `inputs[run]`: what the callers write before that run.
  Values(const verifier::Sequence& sequence, const std::vector<PartsByName>& inputs);

  // Throws Error (invalid) for data out of range; a broken assertion for a kernel that writes outside of its box.
  void take(const Event& event);
  // By run: what the callers read after it.
  const std::vector<PartsByName>& outputs() const { return outputs_; }

 private:
  // A box of a buffer, dense, with room for guards before and behind.
  struct Copy {
    std::vector<std::byte> bytes;
    View view;
  };
  using Captured = std::map<std::size_t, Copy>;  // by place in the list of reads

  std::vector<std::byte>& memory(BufferId buffer, int run);
  void take_caller(const Instance& caller);
  Copy room_for(const Access& access) const;
  Copy copy_in(const Access& access, int run);
  void copy_out(const Copy& copy, const Access& access, int run);
  // Fills a member's writes with what the joint makes of the members' reads.
  void run_joint(const Instance& instance, std::span<const View> writes);
  void run_task(const Instance& instance);

  const verifier::Sequence& sequence_;
  const Plan& plan_;
  std::vector<std::vector<TaskId>> joints_;
  const std::vector<PartsByName>& inputs_;
  std::vector<PartsByName> outputs_;
  std::vector<std::size_t> first_slot_;  // by buffer
  std::vector<std::vector<std::byte>> slots_;
  std::map<int, Captured> captured_;  // by instance that has loaded and not stored
};

}  // namespace tileway::host
