// Hopper's own instructions, each in a small function: barriers in shared memory, tensor loads, and matrix products of
// warpgroups. For sm_90a only; included by kernels that are compiled for it. Addresses in shared memory are the 32-bit
// ones of the shared window (shared_address).
#pragma once

#include "tileway/signal.cuh"
#include "tileway/types.cuh"

namespace tileway {

__device__ __forceinline__ u32 shared_address(const void* shared) {
  return static_cast<u32>(__cvta_generic_to_shared(shared));
}

// How long one wait for what should come soon may last, or until somebody gives up.
struct Patience {
  u64 nanoseconds;
  const u32* abort;
};

// Between ordinary accesses to shared memory and those of the asynchronous proxy, either way.
__device__ __forceinline__ void fence_async_proxy_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- Barriers. One phase of a barrier ends when `arrivals` threads have arrived and all expected bytes have landed;
// the parity of phase p is p mod 2, and a fresh barrier is in phase 0. So a wait for parity 1 passes at first.

__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// After the inits, by the thread that made them: tensor loads see the barriers. Other threads do after __syncthreads.
__device__ __forceinline__ void mbarrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  fence_async_proxy_shared();
}
// Arrives, and has the phase last until that many bytes have been loaded besides.
__device__ __forceinline__ void mbarrier_arrive_expecting(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Arrives with release semantics.
__device__ __forceinline__ void mbarrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Whether the phase of that parity has ended; acquire semantics when it has.
struct Sleeping {
  static constexpr char text[] = "try_wait";  // a little, first
};
struct Looking {
  static constexpr char text[] = "test_wait";
};
template <typename How>
__device__ __forceinline__ bool mbarrier_has_ended(u32 barrier, u32 parity) {
  u32 ended;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.%3.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(ended)
      : "r"(barrier), "r"(parity), "C"(How::text)
      : "memory");
  return ended != 0;
}
// Waits for that; false when patience ran out first. Looks only now and then whether it is too late, or somebody has
// given up: the clock takes as long to read as many a wait.
__device__ __forceinline__ bool mbarrier_wait(u32 barrier, u32 parity, const Patience& patience) {
  constexpr u32 kTries = 256;
  u64 begun = 0;
  while (true) {
#pragma unroll 1
    for (u32 i = 0; i < kTries; ++i) {
      if (mbarrier_has_ended<Sleeping>(barrier, parity)) return true;
    }
    const u64 now = now_ns();
    if (begun == 0) begun = now;
    if (given_up(patience.abort) || now - begun >= patience.nanoseconds) return false;
  }
}

// ---- Tensor loads and stores. A tensor map is 128 bytes, written by the host (src/runtime/cuda/tensor_map.hpp).

// Once a block for each map in global memory, before its first use and by the thread that uses it: the unit that reads
// maps keeps copies, and one from before the host's last write may linger. Loads wait meanwhile.
__device__ __forceinline__ void tensor_map_acquire(const void* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}
// The map that a thread has used last; another one it acquires first.
class MapInUse {
 public:
  __device__ __forceinline__ void use(const void* map) {
    if (map == last_) return;
    tensor_map_acquire(map);
    last_ = map;
  }

 private:
  const void* last_ = nullptr;
};
// Loads the box of the map that begins at (x, y, z), x counting along rows, to shared memory, swizzled as the map says,
// with zeros outside the map's extents. Its bytes, zeros included, count at the barrier. One thread calls it.
__device__ __forceinline__ void tensor_load(u32 to, const void* map, u32 x, u32 y, u32 z, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
}

// Stores to the box of the map that begins at (x, y, z) what lies in shared memory, swizzled as the map says, but for
// what is outside the map's extents; belongs to the next bulk group that the thread commits. One thread calls it.
__device__ __forceinline__ void tensor_store(const void* map, u32 x, u32 y, u32 z, u32 from) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map),
               "r"(x), "r"(y), "r"(z), "r"(from)
               : "memory");
}
// Four matrices of 8 x 8 elements of 16 bits to shared memory, by a warp: thread t holds of row t / 4 of each the
// columns 2 * (t % 4) and the next. Thread 8 * m + r gives the address of row r of matrix m, 16-byte aligned.
__device__ __forceinline__ void store_matrices(u32 row, u32 first, u32 second, u32 third, u32 fourth) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(first), "r"(second),
               "r"(third), "r"(fourth)
               : "memory");
}

// ---- Matrix products of a warpgroup: four warps, the first one's number divisible by four, execute these together.

// How wgmma finds an operand in shared memory that is swizzled by 128 bytes: the sixteen-byte chunk c of the 128-byte
// line l lies at c ^ (l mod 8). Lines count from a 1024-byte boundary, on which eight lines, one atom, begin. Atoms are
// `stride` bytes apart in groups of eight lines; `leading` bytes apart along the lines (of no meaning for K-major
// operands, whose instruction takes less than a line).
__device__ __forceinline__ u64 wgmma_operand(u32 address, u32 leading, u32 stride) {
  constexpr u64 kSwizzle128 = 1;
  return kSwizzle128 << 62 | static_cast<u64>(stride >> 4) << 32 | static_cast<u64>(leading >> 4) << 16 |
         static_cast<u64>(address >> 4);
}
// The operand that begins so many bytes later. Addresses of shared memory stay below what the field holds.
__device__ __forceinline__ u64 wgmma_advance(u64 operand, u32 bytes) { return operand + (bytes >> 4); }

// Before the first product, and whenever the accumulators were touched by anything else.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Makes a group of the products since the last one.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `pending` groups are unfinished. What they read may then be overwritten.
template <u32 pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
// After the last wait: no use of the accumulators is moved before it.
template <u32 count>
__device__ __forceinline__ void wgmma_settle(float (&sums)[count]) {
#pragma unroll
  for (u32 i = 0; i < count; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// What PTX calls an element.
template <typename T>
struct PtxName;
template <>
struct PtxName<bf16> {
  static constexpr char text[] = "bf16";
};
template <>
struct PtxName<f16> {
  static constexpr char text[] = "f16";
};

// Two sums rounded to neighbours in memory, the first one first.
template <typename T>
__device__ __forceinline__ u32 narrow_pair(float first, float second) {
  u32 pair;
  asm("cvt.rn.%3x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(first), "f"(second), "C"(PtxName<T>::text));
  return pair;
}

// d += A x B: A is 64 x 16 and K-major, B is 16 x 256 and N-major. Thread t of the warpgroup holds of row
// 16 * (t / 32) + t % 32 / 4, for each block j of eight columns, columns 8 * j + 2 * (t % 4) and the next in d[4 * j]
// and d[4 * j + 1], and of the row eight further down the same columns in d[4 * j + 2] and d[4 * j + 3].
template <typename T>
__device__ __forceinline__ void wgmma_64x256x16(float (&d)[128], u64 a, u64 b) {
  // clang-format off
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.%130.%130 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      " %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      " %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      " %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      " %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, 1, 1, 1, 0, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]),
        "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]),
        "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]),
        "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),
        "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]),
        "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]),
        "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]),
        "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),
        "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
      : "l"(a), "l"(b), "C"(PtxName<T>::text));
  // clang-format on
}

// The same of e4m3: A is 64 x 32, B is 32 x 128 and K-major too. Without `accumulate`, d is not added to but written.
template <bool accumulate>
__device__ __forceinline__ void wgmma_64x128x32(float (&d)[64], u64 a, u64 b) {
  // clang-format off
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, %66, 1, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "n"(accumulate ? 1 : 0));
  // clang-format on
}

// ---- Registers: warpgroups hand them from one to another; all four warps of one call it.

template <u32 count>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}
template <u32 count>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

}  // namespace tileway
