// Puts, gets, packets and barriers of the device headers between two GPUs, every byte compared on the GPU.
// scripts/gpu.sh runs it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/kernels.hpp"
#include "tileway/error.hpp"
#include "tileway/packet.cuh"

namespace tileway::cuda {
namespace {

constexpr std::uint64_t kPatience = 5'000'000'000;

// What all kernels here use: data that are other for every place, rank and round, and moments of other length.
constexpr const char* kCommon = R"(
using namespace tileway;
__device__ __forceinline__ u32 mixed(u32 a, u32 b, u32 c) {
  u32 hash = a * 2654435761u ^ b * 2246822519u ^ c * 3266489917u;
  hash ^= hash >> 15;
  hash *= 2246822519u;
  return hash ^ hash >> 13;
}
__device__ __forceinline__ u8 byte_at(u64 i, u32 seed) {
  return static_cast<u8>((i * 2654435761u + seed) >> 13 ^ (i >> 24) * 31);
}
// Most moments are short; one in 64 is long enough for a peer to get ahead.
__device__ __forceinline__ void dawdle(u32 hash) {
  if (threadIdx.x == 0) {
    const u64 until = now_ns() + (hash >> 8) % (hash % 64 == 0 ? 40000 : 2000);
    while (now_ns() < until) {
    }
  }
  __syncthreads();
}
)";

// ---- Puts and gets.

constexpr const char* kMoves = R"(
extern "C" __global__ void fill(u8* to, u64 bytes, u32 seed) {
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < bytes; i += static_cast<u64>(gridDim.x) * blockDim.x)
    to[i] = byte_at(i, seed);
}
// What was moved, and what lies around it.
extern "C" __global__ void count_wrong(const u8* from, u64 bytes, u32 seed, u32 around, u8 poison, u64* wrong) {
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < bytes; i += static_cast<u64>(gridDim.x) * blockDim.x)
    if (from[i] != byte_at(i, seed)) atomicAdd(wrong, 1ull);
  if (blockIdx.x != 0) return;
  for (u32 i = threadIdx.x; i < around; i += blockDim.x) {
    if (*(from - 1 - i) != poison) atomicAdd(wrong + 1, 1ull);
    if (from[bytes + i] != poison) atomicAdd(wrong + 1, 1ull);
  }
}
struct Move {
  u8* to;
  const u8* from;
  u64 bytes;
  SystemSignal* theirs;   // one block raises it by one
  SystemSignal* mine;
  SystemSignal* their_start;
  SystemSignal* my_start;
  u64 patience_ns;
  u32* abort;
  int* answer;
  u32 target;  // of `mine`
  u32 start;   // of `my_start`
};
static_assert(sizeof(Move) == 88);
// A block's share, in pieces of sixteen bytes so that shares stay aligned as the whole is.
struct Share {
  u64 begin;
  u64 bytes;
};
__device__ __forceinline__ Share share_of(u64 bytes) {
  const u64 each = (bytes + gridDim.x * 16 - 1) / (gridDim.x * 16) * 16;
  const u64 begin = blockIdx.x * each < bytes ? blockIdx.x * each : bytes;
  return {begin, bytes - begin < each ? bytes - begin : each};
}
__device__ __forceinline__ void end(const Move& m) {
  if (blockIdx.x != 0) return;
  const Waited waited = wait_by_block(m.mine, m.target, now_ns() + m.patience_ns, m.abort);
  if (threadIdx.x == 0) *m.answer = static_cast<int>(waited);
}
extern "C" __global__ void put(Move m) {
  const Share share = share_of(m.bytes);
  put_signal_by_block(m.to + share.begin, m.from + share.begin, share.bytes, m.theirs, 1);
  end(m);
}
extern "C" __global__ void put_in_warps(Move m) {
  const Share share = share_of(m.bytes);
  const u64 warps = blockDim.x / 32;
  const u64 warp = threadIdx.x / 32;
  const u64 begin = share.bytes * warp / warps;
  const u64 bytes = share.bytes * (warp + 1) / warps - begin;
  put_by_warp(m.to + share.begin + begin, m.from + share.begin + begin, bytes);
  __syncthreads();
  if (threadIdx.x == 0) notify(m.theirs, 1);
  end(m);
}
extern "C" __global__ void put_bulk(Move m) {
  extern __shared__ __align__(128) u8 shared[];
  BulkPuts<> puts(shared);
  const Share share = share_of(m.bytes);
  const u64 half = share.bytes / 2;  // where the second one begins is aligned anyhow
  puts.put_nbi(m.to + share.begin, m.from + share.begin, half);
  puts.put_nbi(m.to + share.begin + half, m.from + share.begin + half, share.bytes - half);
  puts.quiet();
  if (threadIdx.x == 0) notify(m.theirs, 1);
  end(m);
}
extern "C" __global__ void get(Move m) {
  if (blockIdx.x == 0 && threadIdx.x == 0) notify(m.their_start, 1);  // what an earlier kernel filled is there
  if (wait_by_block(m.my_start, m.start, now_ns() + m.patience_ns, m.abort) != Waited::done) return;
  const Share share = share_of(m.bytes);
  get_by_block(m.to + share.begin, m.from + share.begin, share.bytes);
  __syncthreads();
  if (threadIdx.x == 0) notify(m.theirs, 1);  // it has been read
  end(m);
}
)";

struct Move {
  Address to = 0, from = 0;
  std::uint64_t bytes = 0;
  Address theirs = 0, mine = 0, their_start = 0, my_start = 0;
  std::uint64_t patience_ns = kPatience;
  Address abort = 0, answer = 0;
  std::uint32_t target = 0, start = 0;
};
static_assert(sizeof(Move) == 88, "as the kernels have it");

// In each part: signals and the like, then what arrives, then what is sent.
constexpr std::size_t kMost = std::size_t{256} << 20;
constexpr std::size_t kAround = 64;  // bytes that nobody may write, on both sides
constexpr std::size_t kIn = 4096;
constexpr std::size_t kOut = kIn + kMost + 4096;
constexpr std::size_t kBytes = kOut + kMost + 4096;
constexpr std::size_t kStart = 64, kAbort = 128, kAnswer = 192, kWrong = 256;
constexpr unsigned char kPoison = 0xee;
constexpr unsigned kBlocks = 48;
constexpr unsigned kBulkBytes = 4 * 16384 + 128;  // BulkPuts<>::kSharedBytes

std::string source_of_moves() {
  return std::string("#include \"tileway/bulk.cuh\"\n") + kCommon + kMoves +
         fmt::format("static_assert(BulkPuts<>::kSharedBytes == {});\n", kBulkBytes);
}

// Moves all sizes at all skews in both directions at once, by kernel `name`, and looks at every byte.
void move_everything(Group& group, const char* name, unsigned shared_bytes, bool get) {
  const int ordinal = ordinal_of(group);
  const Device device(ordinal);
  const Kernels kernels(gpus()[ordinal], source_of_moves(), "put_get_test");
  const SymmetricMemory memory(group, device, kBytes);
  const Address mine = memory.on(group.rank());
  const Address peer = memory.on(1 - group.rank());
  check(driver()->MemsetD8(mine, 0, 4096), "clearing signals");
  group.barrier("cleared");
  struct Skew {
    std::size_t in, out;
  };
  std::uint32_t moves = 0;
  std::uint32_t target = 0;
  for (std::uint64_t bytes :
       {std::uint64_t{1}, std::uint64_t{3}, std::uint64_t{16}, std::uint64_t{17}, std::uint64_t{4095},
        std::uint64_t{65536}, std::uint64_t{1000003}, std::uint64_t{64} << 20, std::uint64_t{256} << 20}) {
    for (const Skew skew : {Skew{0, 0}, Skew{5, 5}, Skew{0, 4}, Skew{3, 14}, Skew{15, 0}}) {
      ++moves;
      const unsigned blocks = bytes <= 4096 ? 1 + moves % 3 : kBlocks;
      target += blocks;
      const std::size_t in = kIn + kAround + skew.in;
      const std::size_t out = kOut + skew.out;
      const auto seed = [&](int rank) { return moves * 7919U + static_cast<unsigned>(rank) * 104729U; };
      check(driver()->MemsetD8(mine + in - kAround, kPoison, bytes + 2 * kAround), "poisoning");
      check(driver()->MemsetD8(mine + kWrong, 0, 16), "clearing counts");
      kernels.launch("fill", 256, mine + out, bytes, seed(group.rank()));
      check(driver()->CtxSynchronize(), "filling");
      group.barrier("ready");
      Move move{.bytes = bytes, .theirs = peer, .mine = mine, .their_start = peer + kStart, .my_start = mine + kStart};
      move.to = get ? mine + in : peer + in;
      move.from = get ? peer + out : mine + out;
      move.abort = mine + kAbort;
      move.answer = mine + kAnswer;
      move.target = target;
      move.start = moves;
      kernels.launch_with_shared(name, blocks, shared_bytes, move);
      kernels.launch("count_wrong", 256, mine + in, bytes, seed(1 - group.rank()), static_cast<unsigned>(kAround),
                     kPoison, mine + kWrong);
      check(driver()->CtxSynchronize(), name);
      const auto wrong = read<std::uint64_t>(mine + kWrong);
      const auto around = read<std::uint64_t>(mine + kWrong + 8);
      const auto answer = read<int>(mine + kAnswer);
      TW_REQUIRE(answer == 0 && wrong == 0 && around == 0, ErrorKind::lost, .where = name, .what = "it went wrong",
                 .got = fmt::format("{} bytes from +{} to +{}: {} wrong, {} written outside, wait {}", bytes, skew.out,
                                    skew.in, wrong, around, answer));
      group.barrier("looked at");
    }
  }
  if (group.rank() == 0) fmt::print("{}: {} moves, up to {} MiB, every byte right\n", name, moves, kMost >> 20);
}

TEST(CudaPutGet, ProcessesPutsArriveWhole) {
  Group::spawn(2, [](Group& group) { move_everything(group, "put", 0, false); });
}
TEST(CudaPutGet, ProcessesPutsOfWarpsArriveWhole) {
  Group::spawn(2, [](Group& group) { move_everything(group, "put_in_warps", 0, false); });
}
TEST(CudaPutGet, ProcessesBulkPutsArriveWholeAfterQuiet) {
  Group::spawn(2, [](Group& group) { move_everything(group, "put_bulk", kBulkBytes, false); });
}
TEST(CudaPutGet, ProcessesGetsFetchTheWhole) {
  Group::spawn(2, [](Group& group) { move_everything(group, "get", 0, true); });
}

// ---- Packets and barriers: many rounds in one kernel.

constexpr const char* kRounds = R"(
struct Rounds {
  u8* peer;        // packets: a buffer a block
  u8* mine;
  u8* out;         // private: `capacity` bytes a block
  u8* in;
  SystemSignal** arrivals;  // by rank
  u64 capacity;
  u64* result;     // wrong bytes; rounds that ended; blocks that waited in vain; what the last one of them came to
  u32* abort;
  u64 patience_ns;
  u32 first;       // epoch
  u32 rounds;
  u32 rank;
  u32 unused;
};
static_assert(sizeof(Rounds) == 88);
__device__ __forceinline__ void end(const Rounds& a, u64 wrong, u32 ended, Waited waited) {
  if (wrong != 0) atomicAdd(a.result, wrong);
  if (threadIdx.x != 0) return;
  atomicAdd(a.result + 1, static_cast<u64>(ended));
  if (waited == Waited::done) return;
  atomicAdd(a.result + 2, 1ull);
  a.result[3] = static_cast<u64>(waited);
  give_up(a.abort);
}

// Each round another number of bytes, so that old packets stay in between.
extern "C" __global__ void packets(Rounds a) {
  const u32 block = blockIdx.x;
  const u64 buffer = block * packet_buffer_bytes(a.capacity);
  u8* out = a.out + block * a.capacity;
  u8* in = a.in + block * a.capacity;
  u64 wrong = 0;
  u32 round = 0;
  Waited waited = Waited::done;
  for (; round < a.rounds; ++round) {
    const u32 epoch = a.first + round;
    const u64 bytes = 1 + mixed(round, block, 17) % a.capacity;
    for (u64 i = threadIdx.x; i < bytes; i += blockDim.x) out[i] = byte_at(i, mixed(round, a.rank, block));
    dawdle(mixed(round, a.rank, 2 * block));
    put_packets_by_block(a.peer + buffer, a.capacity, out, bytes, epoch);
    dawdle(mixed(round, a.rank, 2 * block + 1));
    waited = wait_packets_by_block(in, a.mine + buffer, a.capacity, bytes, epoch, now_ns() + a.patience_ns, a.abort);
    if (waited != Waited::done) break;
    for (u64 i = threadIdx.x; i < bytes; i += blockDim.x)
      if (load_byte(in + i) != byte_at(i, mixed(round, 1 - a.rank, block))) ++wrong;
    __syncthreads();
  }
  end(a, wrong, round, waited);
}

// Each block writes a word for each block of the peer, in two slots by turns, and after the barrier finds those of all.
template <bool whole_grid>
__device__ __forceinline__ void meet(const Rounds& a) {
  const u32 cells = gridDim.x;
  u64 wrong = 0;
  u32 round = 0;
  Waited waited = Waited::done;
  for (; round < a.rounds; ++round) {
    const u32 epoch = a.first + round;
    const u64 slot = static_cast<u64>(round & 1) * cells * cells;
    u32* theirs = reinterpret_cast<u32*>(a.peer) + slot;
    const u32* mine = reinterpret_cast<const u32*>(a.mine) + slot;
    dawdle(mixed(round, a.rank, blockIdx.x));
    for (u32 i = threadIdx.x; i < cells; i += blockDim.x) theirs[blockIdx.x * cells + i] = mixed(round, a.rank, blockIdx.x * cells + i);
    const u64 deadline = now_ns() + a.patience_ns;
    if constexpr (whole_grid) waited = barrier_by_grid(a.arrivals, a.rank, 2, epoch, deadline, a.abort);
    else waited = barrier_by_block(a.arrivals, a.rank, 2, epoch, deadline, a.abort);
    if (waited != Waited::done) break;
    for (u32 i = threadIdx.x; i < cells * cells; i += blockDim.x)
      if (load_word(mine + i) != mixed(round, 1 - a.rank, i)) ++wrong;
    __syncthreads();
  }
  end(a, wrong, round, waited);
}
extern "C" __global__ void meet_as_blocks(Rounds a) { meet<false>(a); }
extern "C" __global__ void meet_as_grids(Rounds a) { meet<true>(a); }
)";

struct Rounds {
  Address peer = 0, mine = 0, out = 0, in = 0, arrivals = 0;
  std::uint64_t capacity = 0;
  Address result = 0, abort = 0;
  std::uint64_t patience_ns = kPatience;
  std::uint32_t first = 1, rounds = 0, rank = 0, unused = 0;
};
static_assert(sizeof(Rounds) == 88, "as the kernels have it");
struct Result {
  std::uint64_t wrong, ended, in_vain, waited;
};

// Symmetric: what peers write from 4096 on, signals before. Private: results, addresses, and data from 4096 on.
class Place {
 public:
  static constexpr std::size_t kShared = std::size_t{4} << 20;
  Place(Group& group, const Device& device) : group_(group), memory_(group, device, kShared), own_(kShared) {
    clear();
    for (int rank = 0; rank < 2; ++rank) {
      const Address arrivals = memory_.on(rank) + 2048;
      check(driver()->MemcpyHtoD(own_.address() + 1024 + 8 * static_cast<unsigned>(rank), &arrivals, 8), "addresses");
    }
  }
  void clear() {
    check(driver()->MemsetD8(memory_.on(group_.rank()), 0, kShared), "clearing");
    check(driver()->MemsetD8(own_.address(), 0, 1024), "clearing");
    check(driver()->CtxSynchronize(), "clearing");
    group_.barrier("cleared");
  }
  Rounds arguments(std::uint32_t rounds) const {
    Rounds a{.peer = memory_.on(1 - group_.rank()) + 4096, .mine = memory_.on(group_.rank()) + 4096};
    a.out = own_.address() + 4096;
    a.in = own_.address() + kShared / 2;
    a.arrivals = own_.address() + 1024;
    a.result = own_.address();
    a.abort = memory_.on(group_.rank());
    a.rounds = rounds;
    a.rank = static_cast<std::uint32_t>(group_.rank());
    return a;
  }
  Result result() const {
    check(driver()->CtxSynchronize(), "running");
    return read<Result>(own_.address());
  }

 private:
  Group& group_;
  SymmetricMemory memory_;
  DeviceMemory own_;
};

std::string source_of_rounds() {
  return std::string("#include \"tileway/barrier.cuh\"\n#include \"tileway/packet.cuh\"\n") + kCommon + kRounds;
}
Kernels kernels_of_rounds(int ordinal) { return {gpus()[ordinal], source_of_rounds(), "rounds_test"}; }

// Without a GPU, too.
TEST(CudaPutGet, ProcessesKernelsCompile) {
  Group::spawn(1, [](Group&) {
    if (!compiler_found()) {
      fmt::print("skipped: {}\n", compiler_text());
      return;
    }
    for (const char* architecture : {"sm_80", "sm_90a", "sm_100a"}) {
      compile(source_of_moves(), "put_get_test", architecture);
      compile(source_of_rounds(), "rounds_test", architecture);
    }
  });
}

void expect_all_right(const Result& result, std::uint64_t rounds, const char* where) {
  TW_REQUIRE(result.wrong == 0 && result.in_vain == 0 && result.ended == rounds, ErrorKind::lost, .where = where,
             .what = "it went wrong",
             .got = fmt::format("{} wrong, {} of {} rounds, {} waits in vain ({})", result.wrong, result.ended, rounds,
                                result.in_vain, result.waited));
}

std::uint32_t many_rounds() { return ranks_run_together() ? 10000 : 20; }

TEST(CudaPackets, ProcessesTenThousandRoundsOfChangingDataArriveWhole) {
  static constexpr unsigned kBlocksHere = 16;
  static constexpr std::uint64_t kCapacity = 4093;
  static_assert(kBlocksHere * packet_buffer_bytes(kCapacity) + 4096 <= Place::kShared);
  Group::spawn(2, [](Group& group) {
    const Device device(ordinal_of(group));
    const Kernels kernels = kernels_of_rounds(device.ordinal());
    Place place(group, device);
    const std::uint32_t rounds = many_rounds();
    // From the first epoch on, and over the end of the numbers.
    for (const std::uint32_t first : {std::uint32_t{1}, ~std::uint32_t{0} - rounds / 2}) {
      place.clear();
      Rounds arguments = place.arguments(rounds);
      arguments.first = first;
      arguments.capacity = kCapacity;
      kernels.launch_cooperatively("packets", kBlocksHere, arguments);
      expect_all_right(place.result(), std::uint64_t{rounds} * kBlocksHere, "packets");
      group.barrier("looked at");
    }
    if (group.rank() == 0) fmt::print("packets: 2 x {} rounds of {} blocks, every byte right\n", rounds, kBlocksHere);
  });
}

TEST(CudaBarrier, ProcessesTenThousandRoundsOrderWhatWasWrittenBefore) {
  Group::spawn(2, [](Group& group) {
    const Device device(ordinal_of(group));
    const Kernels kernels = kernels_of_rounds(device.ordinal());
    Place place(group, device);
    const std::uint32_t rounds = many_rounds();
    for (const auto& [name, blocks] : {std::pair("meet_as_blocks", 1U), std::pair("meet_as_grids", 32U)}) {
      place.clear();
      kernels.launch_cooperatively(name, blocks, place.arguments(rounds));
      expect_all_right(place.result(), std::uint64_t{rounds} * blocks, name);
      group.barrier("looked at");
      if (group.rank() == 0) fmt::print("{}: {} rounds of {} blocks a rank, every word right\n", name, rounds, blocks);
    }
  });
}

// Rank 1 never comes; then rank 0 is told to give up while it waits with all the time in the world.
TEST(CudaBarrier, ProcessesWaitsInVainEndAtTheirDeadlineOrWhenSomebodyGivesUp) {
  Group::spawn(2, [](Group& group) {
    const Device device(ordinal_of(group));
    const Kernels kernels = kernels_of_rounds(device.ordinal());
    Place place(group, device);
    constexpr unsigned kBlocksHere = 4;
    for (const char* name : {"packets", "meet_as_grids"}) {
      for (const bool told : {false, true}) {
        place.clear();
        Rounds arguments = place.arguments(10);
        arguments.capacity = 100;
        arguments.patience_ns = told ? 20'000'000'000 : 100'000'000;
        if (group.rank() == 0) kernels.launch_cooperatively(name, kBlocksHere, arguments);
        // The flag of the peer, which is at the beginning of its part.
        const int raised = 1;
        if (group.rank() == 1 && told) check(driver()->MemcpyHtoD(arguments.peer - 4096, &raised, 4), "giving up");
        const Result result = place.result();
        // Blocks that are late give up for the others, which may thus be late or aborted.
        TW_REQUIRE(group.rank() == 1 || (result.in_vain == kBlocksHere && result.ended == 0 &&
                                         (told ? result.waited == 2 : result.waited == 1 || result.waited == 2)),
                   ErrorKind::lost, .where = name, .what = "a wait in vain did not end as it should",
                   .got = fmt::format("{} in vain, {} ended, {}", result.in_vain, result.ended, result.waited));
        group.barrier("looked at");
      }
    }
  });
}

}  // namespace
}  // namespace tileway::cuda
