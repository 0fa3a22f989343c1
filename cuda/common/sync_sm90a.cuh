/* Order between warps, proxies and grids. */
#pragma once
#include <cstdint>

// PTX ISA 9.0, 9.7.13.1 barrier: `threads` (a multiple of 32) threads of the block meet at barrier `id` (1..15)
__device__ __forceinline__ void named_barrier_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
// The same behind what computes `sum`, which is not negative: an arrival under a predicate of it, one that always holds. Otherwise ptxas moves that code
// across the barrier.
__device__ __forceinline__ void named_barrier_arrive_behind(float sum, int id, int threads) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %0, 0x80000001;\n"
      "@p bar.arrive %1, %2;\n}\n" ::"r"(__float_as_uint(sum)),
      "r"(id), "r"(threads)
      : "memory");
}
// Whether it is true for all of them
__device__ __forceinline__ bool named_barrier_all(int id, int threads, bool mine) {
  uint32_t all;
  asm volatile(
      "{\n.reg .pred p, q;\n"
      "setp.ne.u32 p, %3, 0;\n"
      "bar.red.and.pred q, %1, %2, p;\n"
      "selp.u32 %0, 1, 0, q;\n}\n"
      : "=r"(all)
      : "r"(id), "r"(threads), "r"(static_cast<uint32_t>(mine))
      : "memory");
  return __any_sync(~0u, all);  // a vote, so that ptxas knows it to be the same for all lanes
}

// 9.7.13.4 fence.proxy.async: ordinary writes before it are seen by wgmma and the copy engine after the next barrier
__device__ __forceinline__ void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// 9.7.13.5 atom: whoever adds later has seen what was written before
__device__ __forceinline__ unsigned add_ordered(unsigned* to, unsigned v) {
  unsigned old;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(old) : "l"(to), "r"(v) : "memory");
  return old;
}

// 9.7.13.6 red, 9.7.9.11 st and 9.7.9.8 ld: whoever sees the sum also sees what the adding threads wrote before
__device__ __forceinline__ void add_released(unsigned* to, unsigned v) {
  asm volatile("red.add.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}
__device__ __forceinline__ void store_released(unsigned* to, unsigned v) { asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory"); }
__device__ __forceinline__ unsigned load_acquire(const unsigned* p) {
  unsigned v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

// 9.7.19.5 setmaxnreg, by all four warps of a warpgroup
template <int REGISTERS>
__device__ __forceinline__ void registers_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void registers_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

/* 9.7.13.13 griddepcontrol (programmatic dependent launch). A kernel lets its successor start early with pdl_launch(), which publishes nothing;
   the successor's pdl_wait() returns when every earlier grid of the chain has ended and its writes are visible. Every kernel of a chain waits,
   and touches nothing that another kernel of it writes or still reads before it has; but what a kernel before its predecessor wrote is there already
   where that one called pdl_launch() behind its own wait: its writes have reached L2. That is what hardware does; the ISA promises it to who waits.
   One predecessor goes further: QKV and attention as one kernel fences W_attn before it lets the projection start, which fetches it ahead of its wait
   (cast_role in attention/qkv_attention_sm90a.cuh). */
__device__ __forceinline__ void pdl_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void pdl_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// 10.23 %clock: the SM's cycles, their low half
__device__ __forceinline__ uint32_t clock_low() {
  uint32_t now;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
  return now;
}

// 9.7.13.14 elect.sync: true in one lane of the warp. ptxas knows that a branch on it has one thread, and issues copies
// there without a loop over lanes
__device__ __forceinline__ bool elect_one() {
  uint32_t elected;
  asm volatile(
      "{\n.reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n}\n"
      : "=r"(elected));
  return elected;
}

// The thread's warp, in a way that ptxas knows to be the same for all lanes: descriptors made from it then lie in
// uniform registers. Otherwise each wgmma waits for two moves there, and those for the wgmma before it: 80 clocks each
// instead of 32 to 48 for 64 columns
__device__ __forceinline__ int uniform_warp() { return __shfl_sync(0xffffffffu, threadIdx.x / 32, 0); }
