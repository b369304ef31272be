// NCCL, opened when the program runs: building needs no header of it, and a machine without it does everything else.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "runtime/cuda/driver.hpp"
#include "tileway/dtype.hpp"
#include "tileway/function.hpp"
#include "tileway/group.hpp"

struct ncclComm;  // as NCCL's own header names it

namespace tileway::cuda {

// Whether NCCL is there and new enough, and which; or why not.
bool collectives_found();
std::string collectives_text();

// How many blocks a communicator may have on a device, and so how many multiprocessors the compute lanes leave it: a
// block of NCCL and one of a plan's kernel do not fit one together. More would carry more over the links and compute
// less; 8 of 132 cost 6% of the products.
inline constexpr int kCollectiveBlocks = 8;

// Elements one after the other on a device.
struct Elements {
  Address address = 0;
  std::size_t count = 0;
};

// The members of a group as NCCL knows them. No call waits inside NCCL: it returns, is asked how it stands, and gives
// up when a member is lost or the group's deadline has passed.
class Communicator {
 public:
  // Collective over the group. The calling thread's device is the rank's; all ranks have different ones. Throws Error
  // (system) where NCCL is missing or refuses, and Error (lost) for members that do not come.
  explicit Communicator(Group members);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  // Waits some seconds at the most; what NCCL has not freed by then it keeps. Graphs that have captured its calls are
  // gone by then, or it cannot free itself.
  ~Communicator();

  // These put a call in the stream, which may be capturing, and return when it is there. All members make the same
  // calls in the same order. They throw Error (lost) or Error (system). `op` over what all members give.
  void all_reduce(Elements give, Address take, DType dtype, ReduceOp op, Stream stream);
  // To each member `op` over what all give in its place: as many elements as the members are, counts may differ or be
  // 0.
  void reduce_scatter(std::span<const Elements> give, Address take, DType dtype, ReduceOp op, Stream stream);
  // Gives each member what stands in its place, and takes as much from it as stands there.
  void exchange(std::span<const Elements> give, std::span<const Elements> take, DType dtype, Stream stream);
  // Ends what its calls wait for on the device, now and later; returns at once. It takes no calls afterwards.
  void abort() noexcept;

 private:
  struct Ending;

  // Until NCCL has done what it has begun.
  void settle(int result, std::string_view step);
  // Several operations as one call: `put(member)` returns what NCCL said to that member's, for each in turn.
  void call_together(const std::function<int(int member)>& put, std::string_view step);
  // Frees it in a thread of its own: NCCL waits there for streams and graphs.
  void end(bool orderly) noexcept;

  Group group_;
  ncclComm* handle_ = nullptr;
  std::shared_ptr<Ending> ending_;
};

}  // namespace tileway::cuda
