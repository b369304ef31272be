// Ways to hand data to a peer: the right ones, of the device headers, and wrong ones, each with one bug planted. The
// compiled code of all is checked everywhere (tests/correctness/planted_bugs_test.cpp), and all run on GPUs, where the
// wrong ones may or may not be seen to go wrong (tests/gpu/planted_bugs_test.cpp).
#pragma once

#include <string>
#include <vector>

namespace tileway::testing {

struct PutSignalVariant {
  std::string name{};
  std::string hand_over{};  // CUDA: the body of a function that puts `bytes` bytes and raises `signal`
  std::string taken{};      // CUDA: what the waiter's first thread does to `signal` after its wait
  bool cumulative = true;   // whether the waiter waits for the number of the round, or always for 1
  bool bulk = false;        // whether it uses bulk stores: sm_90 and up
  std::string fault{};      // how the check of its compiled code complains; "" for a right one
};
std::vector<PutSignalVariant> put_signal_variants();

// A translation unit with three kernels: `put` hands over once, `take` waits once, and `rounds` does both with a peer
// many times, with data that change, and counts what it finds wrong.
std::string source_of(const PutSignalVariant& variant);

// As the kernel `rounds` knows it, by value. Each block has a piece of everything.
struct RoundsArguments {
  unsigned long long peer = 0;      // two slots of `bytes` a block
  unsigned long long mine = 0;      // the same, at home
  unsigned long long out = 0;       // the same, private
  unsigned long long theirs = 0;    // a SystemSignal a block, at the peer: raised with the data
  unsigned long long own = 0;       // the same, at home
  unsigned long long consumed = 0;  // a SystemSignal a block, at the peer: raised when data were looked at
  unsigned long long free = 0;      // the same, at home
  unsigned long long abort = 0;
  unsigned long long result = 0;  // u64: wrong words; u64: blocks that waited in vain
  unsigned long long patience_ns = 0;
  unsigned long long delay_ns = 0;  // each step begins up to so much later
  unsigned bytes = 0;
  unsigned rounds = 0;
  unsigned rank = 0;
  unsigned salt = 0;
};

}  // namespace tileway::testing
