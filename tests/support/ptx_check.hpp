// What compiled code must contain for a signal to mean what it says, on every path through a kernel: looked for in the
// PTX, so that a missing release is found on a machine whose links happen to keep stores in order, or that has no GPU.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tileway::testing {

// Of a kernel that puts data at a peer and then raises a signal there, once on every path that raises one:
//   - it raises one by an addition with release semantics at system scope;
//   - since the last store to global memory a barrier of the block has passed;
//   - bulk stores have been waited for until they were written, not only until shared memory had been read.
// Each fault names the instruction. Empty where there is none.
std::vector<std::string> faults_of_put_signal(const std::string& ptx, std::string_view kernel);

// Of a kernel that waits for such a signal: it looks at it with acquire semantics at system scope, and does not write
// it.
std::vector<std::string> faults_of_wait(const std::string& ptx, std::string_view kernel);

}  // namespace tileway::testing
