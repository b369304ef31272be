#include "runtime/cuda/nccl.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>

#include "base/env.hpp"
#include "runtime/cuda/library.hpp"
#include "tileway/error.hpp"

namespace tileway::cuda {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Handle = ncclComm*;

constexpr int kSuccess = 0;  // ncclResult_t
constexpr int kInProgress = 7;
constexpr int kOldest = 21700;  // communicators that do not block and have a number of blocks

struct UniqueId {
  std::array<char, 128> bytes{};
};

// ncclConfig_t as NCCL 2.28 has it and as its initialiser fills it in. An older NCCL takes as much of it as it knows, a
// newer one has its own defaults for what is not here.
struct Configuration {
  static constexpr int kUndefined = INT_MIN;
  std::size_t size = sizeof(Configuration);
  unsigned magic = 0xcafebeef;
  unsigned version = 22809;
  int blocking = 0;
  // No clusters: what the compute lanes leave free need not lie together.
  int cluster_size = 0;
  int least_blocks = kCollectiveBlocks;
  int most_blocks = kCollectiveBlocks;
  const char* network = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
  const char* name = nullptr;
  int collnet = kUndefined;
  int block_policy = kUndefined;
  int shrink_share = kUndefined;
  int nvls_blocks = kUndefined;
  int channels_per_peer = kUndefined;
  int nvlink_centric = kUndefined;
};
static_assert(sizeof(Configuration) == 80 && offsetof(Configuration, blocking) == 16 &&
              offsetof(Configuration, network) == 32 && offsetof(Configuration, name) == 48 &&
              offsetof(Configuration, nvlink_centric) == 76);

// NCCL, as far as it is used; its functions return an ncclResult_t.
struct Nccl {
  Library library;
  int (*GetVersion)(int* version) = nullptr;
  int (*GetUniqueId)(UniqueId* id) = nullptr;
  int (*CommInitRankConfig)(Handle* handle, int ranks, UniqueId id, int rank, Configuration* configuration) = nullptr;
  int (*CommFinalize)(Handle handle) = nullptr;
  int (*CommDestroy)(Handle handle) = nullptr;
  int (*CommAbort)(Handle handle) = nullptr;
  int (*CommGetAsyncError)(Handle handle, int* result) = nullptr;
  int (*AllReduce)(const void* send, void* receive, std::size_t count, int type, int op, Handle handle,
                   Stream stream) = nullptr;
  int (*Reduce)(const void* send, void* receive, std::size_t count, int type, int op, int root, Handle handle,
                Stream stream) = nullptr;
  int (*Send)(const void* send, std::size_t count, int type, int peer, Handle handle, Stream stream) = nullptr;
  int (*Recv)(void* receive, std::size_t count, int type, int peer, Handle handle, Stream stream) = nullptr;
  int (*GroupStart)() = nullptr;
  int (*GroupEnd)() = nullptr;
  const char* (*GetErrorString)(int result) = nullptr;
  const char* (*GetLastError)(Handle handle) = nullptr;
  int version = 0;
  std::string why_not;

  Nccl() : library(files()) {
    if (!library.found()) {
      why_not = library.where();
      return;
    }
    const auto take = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.find(name));
      if (!function && why_not.empty()) why_not = fmt::format("{} is too old: it lacks {}", library.where(), name);
    };
    take(GetVersion, "ncclGetVersion");
    take(GetUniqueId, "ncclGetUniqueId");
    take(CommInitRankConfig, "ncclCommInitRankConfig");
    take(CommFinalize, "ncclCommFinalize");
    take(CommDestroy, "ncclCommDestroy");
    take(CommAbort, "ncclCommAbort");
    take(CommGetAsyncError, "ncclCommGetAsyncError");
    take(AllReduce, "ncclAllReduce");
    take(Reduce, "ncclReduce");
    take(Send, "ncclSend");
    take(Recv, "ncclRecv");
    take(GroupStart, "ncclGroupStart");
    take(GroupEnd, "ncclGroupEnd");
    take(GetErrorString, "ncclGetErrorString");
    take(GetLastError, "ncclGetLastError");
    if (!why_not.empty()) return;
    // Multicast over NVLink is never assumed (docs/DESIGN.md), unless the user has said otherwise.
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    if (GetVersion(&version) != kSuccess || version < kOldest)
      why_not = fmt::format("{} is NCCL {}, and 2.17 is needed", library.where(), text_of(version));
  }

  static std::vector<std::string> files() {
    std::vector<std::string> all{"libnccl.so.2"};
    if (const std::string file = env::nccl(); !file.empty()) all.insert(all.begin(), file);
    return all;
  }
  static std::string text_of(int version) {
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }
};

const Nccl& nccl() {
  static const Nccl once;
  return once;
}

int type_of(DType dtype) {
  switch (dtype) {
    case DType::i32:
      return 2;
    case DType::i64:
      return 4;
    case DType::f16:
      return 6;
    case DType::f32:
      return 7;
    case DType::bf16:
      return 9;
    case DType::e4m3:
      return 1;  // bytes: it is moved, never summed
    case DType::f64:
      break;
  }
  TW_ASSERT(!"plans hold no f64");
  return -1;
}

int operation_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return 0;
    case ReduceOp::max:
      return 2;
    case ReduceOp::min:
      return 3;
    case ReduceOp::mean:
      break;
  }
  TW_ASSERT(!"a plan has no collective of means");
  return -1;
}

void* pointer(Address address) { return reinterpret_cast<void*>(address); }

std::string words_of(int result, Handle handle) {
  const char* detail = handle ? nccl().GetLastError(handle) : nullptr;
  const std::string words = fmt::format("{} ({})", nccl().GetErrorString(result), result);
  return detail && *detail != '\0' ? words + ": " + detail : words;
}

// What its first member makes, from there to all. One that could not says so to all.
UniqueId agree_on_id(Group& group) {
  UniqueId id;
  std::string mine;
  if (group.rank() == 0) {
    const int result = nccl().GetUniqueId(&id);
    mine = result == kSuccess ? std::string(id.bytes.begin(), id.bytes.end()) : words_of(result, nullptr);
  }
  const std::string first = group.all_gather(mine, "making a communicator")[0];
  TW_REQUIRE(first.size() == id.bytes.size(), ErrorKind::system, .where = "NCCL",
             .what = "no name for a communicator on its first member", .got = first);
  std::copy(first.begin(), first.end(), id.bytes.begin());
  return id;
}

}  // namespace

bool collectives_found() { return nccl().why_not.empty(); }

std::string collectives_text() {
  if (!collectives_found()) return nccl().why_not;
  return fmt::format("NCCL {} ({})", Nccl::text_of(nccl().version), nccl().library.where());
}

struct Communicator::Ending {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::atomic<bool> hurry = false;

  bool wait(std::chrono::seconds patience) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, patience, [&] { return done; });
  }
};

Communicator::Communicator(Group members) : group_(std::move(members)) {
  TW_REQUIRE(collectives_found(), ErrorKind::system, .where = "NCCL",
             .what = "it is not there, and the plan has collectives for it", .got = collectives_text(),
             .hint =
                 "Install it or pip install nvidia-nccl-cu13 (TILEWAY_NCCL names its file), or choose another "
                 "schedule");
  const UniqueId id = agree_on_id(group_);
  Configuration configuration;
  try {
    settle(nccl().CommInitRankConfig(&handle_, group_.size(), id, group_.rank(), &configuration),
           "making a communicator");
  } catch (...) {
    abort();
    throw;
  }
}

Communicator::~Communicator() {
  constexpr auto kPatience = 5s;
  end(true);
  if (!ending_ || ending_->wait(kPatience)) return;
  ending_->hurry = true;
  ending_->wait(1s);
}

void Communicator::settle(int result, std::string_view step) {
  const Clock::time_point deadline = Clock::now() + group_.deadline();
  Clock::time_point look_around = Clock::now() + 1ms;
  while (result == kInProgress) {
    const Clock::time_point now = Clock::now();
    if (now < look_around) {
      std::this_thread::yield();
    } else {
      look_around = now + 2ms;
      std::this_thread::sleep_for(50us);
      group_.check_members();
      TW_REQUIRE(now < deadline, ErrorKind::lost, .where = fmt::format("NCCL, rank {}", group_.rank()),
                 .what = fmt::format("{} has not ended within {} ms", step, group_.deadline().count()));
    }
    int asked = kSuccess;
    const int answer = nccl().CommGetAsyncError(handle_, &asked);
    result = answer == kSuccess ? asked : answer;
  }
  if (result == kSuccess) return;
  // NCCL may know of a lost member before the group does, and not which.
  for (int look = 0; look < 50; ++look) {
    group_.check_members();
    std::this_thread::sleep_for(2ms);
  }
  throw Error(ErrorKind::system, {.where = fmt::format("NCCL, rank {}", group_.rank()),
                                  .what = fmt::format("{} failed", step),
                                  .got = words_of(result, handle_)});
}

void Communicator::all_reduce(Elements give, Address take, DType dtype, ReduceOp op, Stream stream) {
  TW_ASSERT(!ending_);
  settle(nccl().AllReduce(pointer(give.address), pointer(take), give.count, type_of(dtype), operation_of(op), handle_,
                          stream),
         "an all_reduce");
}

// A group that was started is ended whatever happens in it: NCCL counts them by thread.
void Communicator::call_together(const std::function<int(int member)>& put, std::string_view step) {
  TW_ASSERT(!ending_);
  int result = nccl().GroupStart();
  const bool started = result == kSuccess;
  for (int member = 0; member < group_.size() && (result == kSuccess || result == kInProgress); ++member)
    result = put(member);
  const int ended = started ? nccl().GroupEnd() : result;
  settle(result == kSuccess || result == kInProgress ? ended : result, step);
}

// A root's part is a reduction of its own, so that parts may differ; NCCL does those of a group side by side.
void Communicator::reduce_scatter(std::span<const Elements> give, Address take, DType dtype, ReduceOp op,
                                  Stream stream) {
  call_together(
      [&](int root) {
        const auto& [address, count] = give[static_cast<std::size_t>(root)];
        if (count == 0) return kSuccess;
        void* const result = root == group_.rank() ? pointer(take) : nullptr;
        return nccl().Reduce(pointer(address), result, count, type_of(dtype), operation_of(op), root, handle_, stream);
      },
      "a reduce_scatter");
}

void Communicator::exchange(std::span<const Elements> give, std::span<const Elements> take, DType dtype,
                            Stream stream) {
  call_together(
      [&](int peer) {
        const Elements& to = give[static_cast<std::size_t>(peer)];
        const Elements& from = take[static_cast<std::size_t>(peer)];
        int result = kSuccess;
        if (to.count > 0) result = nccl().Send(pointer(to.address), to.count, type_of(dtype), peer, handle_, stream);
        if (from.count > 0 && (result == kSuccess || result == kInProgress))
          result = nccl().Recv(pointer(from.address), from.count, type_of(dtype), peer, handle_, stream);
        return result;
      },
      "an exchange");
}

void Communicator::abort() noexcept { end(false); }

void Communicator::end(bool orderly) noexcept {
  if (ending_ || handle_ == nullptr) return;
  ending_ = std::make_shared<Ending>();
  std::thread([handle = handle_, orderly, ending = ending_] {
    int result = orderly ? nccl().CommFinalize(handle) : kInProgress;
    while (orderly && result == kInProgress && !ending->hurry) {
      std::this_thread::sleep_for(100us);
      if (nccl().CommGetAsyncError(handle, &result) != kSuccess) break;
    }
    if (result == kSuccess) {
      nccl().CommDestroy(handle);
    } else {
      nccl().CommAbort(handle);
    }
    const std::lock_guard lock(ending->mutex);
    ending->done = true;
    ending->changed.notify_all();
  }).detach();
}

}  // namespace tileway::cuda
