// Runs all_reduce.cuh on all GPUs of this machine that reach each other, in one process, and compares every value.
// It uses Tileway's device headers and the CUDA runtime, and nothing else of Tileway:
//   nvcc -std=c++20 -arch=native -I device examples/user_kernel/main.cu -o user_kernel
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <utility>
#include <vector>

#include "all_reduce.cuh"

namespace {

void check(cudaError_t result, const char* step) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", step, cudaGetErrorString(result));
  std::exit(1);
}

constexpr tileway::u64 kMostFloats = 1 << 18;
constexpr unsigned kBlocks = 64;  // all resident on any GPU of sm_80 or up
constexpr unsigned kThreads = 512;
constexpr int kRuns = 200;

// Small whole numbers, so that sums are exact.
float value(int rank, int run, tileway::u64 i) { return static_cast<float>((i * 7 + rank * 13 + run * 5) % 31) - 15; }

struct Rank {
  AllReduce arguments{};
  std::vector<float*> inputs;  // one a run
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
};

template <typename T>
T* zeros(tileway::u64 bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "allocating");
  check(cudaMemset(memory, 0, bytes), "clearing");
  return static_cast<T*>(memory);
}

int gpus_that_reach_each_other() {
  int found = 0;
  if (cudaGetDeviceCount(&found) != cudaSuccess) return 0;
  found = std::min(found, static_cast<int>(kMostRanks));
  for (int a = 0; a < found; ++a) {
    for (int b = 0; b < a; ++b) {
      int can = 0;
      check(cudaDeviceCanAccessPeer(&can, a, b), "asking for peer access");
      if (!can) return a;
    }
  }
  return found;
}

std::vector<Rank> make_ranks(int count) {
  std::vector<Rank> ranks(count);
  void* packets[kMostRanks] = {};
  for (int r = 0; r < count; ++r) {
    check(cudaSetDevice(r), "choosing a GPU");
    for (int peer = 0; peer < count; ++peer) {
      if (peer != r) check(cudaDeviceEnablePeerAccess(peer, 0), "enabling peer access");
    }
    packets[r] = zeros<void>(count * buffer_bytes(kMostFloats));
    check(cudaStreamCreateWithFlags(&ranks[r].stream, cudaStreamNonBlocking), "making a stream");
    check(cudaEventCreate(&ranks[r].begin), "making an event");
    check(cudaEventCreate(&ranks[r].end), "making an event");
    ranks[r].inputs = {zeros<float>(kMostFloats * sizeof(float)), zeros<float>(kMostFloats * sizeof(float))};
    AllReduce& a = ranks[r].arguments;
    a.output = zeros<float>(kMostFloats * sizeof(float));
    a.capacity = kMostFloats * sizeof(float);
    a.rank = r;
    a.ranks = count;
    a.runs = zeros<tileway::u32>(8);
    a.abort = zeros<tileway::u32>(4);
    a.patience_ns = 2'000'000'000;
    // A kernel that is loaded only when it is first launched may be waited for by one that already runs.
    cudaFuncAttributes attributes;
    check(cudaFuncGetAttributes(&attributes, all_reduce), "loading the kernel");
    check(cudaDeviceSynchronize(), "clearing");
  }
  for (Rank& rank : ranks) std::copy(packets, packets + kMostRanks, rank.arguments.packets);
  return ranks;
}

// Two inputs by turns, so that a stale value shows. The mean time of a run in us, and how many values were wrong.
std::pair<double, tileway::u64> measure(std::vector<Rank>& ranks, tileway::u64 count) {
  std::vector<float> host(count);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    check(cudaSetDevice(static_cast<int>(r)), "choosing a GPU");
    for (int turn = 0; turn < 2; ++turn) {
      for (tileway::u64 i = 0; i < count; ++i) host[i] = value(static_cast<int>(r), turn, i);
      check(cudaMemcpy(ranks[r].inputs[turn], host.data(), count * sizeof(float), cudaMemcpyHostToDevice), "filling");
    }
  }
  for (int run = 0; run < kRuns; ++run) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      Rank& rank = ranks[r];
      check(cudaSetDevice(static_cast<int>(r)), "choosing a GPU");
      if (run == 1) check(cudaEventRecord(rank.begin, rank.stream), "timing");
      rank.arguments.count = count;
      rank.arguments.input = rank.inputs[run % 2];
      all_reduce<<<kBlocks, kThreads, 0, rank.stream>>>(rank.arguments);
      check(cudaGetLastError(), "launching");
    }
  }
  double us = 0;
  tileway::u64 wrong = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    Rank& rank = ranks[r];
    check(cudaSetDevice(static_cast<int>(r)), "choosing a GPU");
    check(cudaEventRecord(rank.end, rank.stream), "timing");
    check(cudaStreamSynchronize(rank.stream), "running");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, rank.begin, rank.end), "timing");
    us = std::max(us, 1000.0 * ms / (kRuns - 1));
    tileway::u32 given_up = 0;
    check(cudaMemcpy(&given_up, rank.arguments.abort, 4, cudaMemcpyDeviceToHost), "reading");
    if (given_up != 0) {
      std::fprintf(stderr, "rank %zu waited in vain\n", r);
      std::exit(1);
    }
    check(cudaMemcpy(host.data(), rank.arguments.output, count * sizeof(float), cudaMemcpyDeviceToHost), "reading");
    for (tileway::u64 i = 0; i < count; ++i) {
      float sum = 0;
      for (std::size_t from = 0; from < ranks.size(); ++from) sum += value(static_cast<int>(from), (kRuns - 1) % 2, i);
      if (host[i] != sum) ++wrong;
    }
  }
  return {us, wrong};
}

}  // namespace

int main() {
  const int count = gpus_that_reach_each_other();
  if (count < 2) {
    std::printf("This needs two GPUs that reach each other's memory; there is %s.\n", count == 0 ? "none" : "one");
    return 0;
  }
  std::vector<Rank> ranks = make_ranks(count);
  std::printf("%d GPUs\n%10s %12s %8s\n", count, "bytes", "us a run", "wrong");
  tileway::u64 all_wrong = 0;
  for (const tileway::u64 floats : std::initializer_list<tileway::u64>{1, 255, 4096, 65537, kMostFloats}) {
    const auto [us, wrong] = measure(ranks, floats);
    std::printf("%10llu %12.2f %8llu\n", floats * 4, us, wrong);
    all_wrong += wrong;
  }
  return all_wrong == 0 ? 0 : 1;
}
