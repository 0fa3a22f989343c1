/* Shared-memory barriers: the full and empty signals of every load ring. PTX ISA 9.0, 9.7.13.15 (mbarrier).
   A wait that never ends is a bug in a kernel, not a state to sit in: after minutes (the kernels before may take long)
   mbarrier_wait() traps and the waits with _or_fault fault (bound.cuh says when that is needed), and the caller gets a
   CUDA error instead of a hung device. The unqualified (cta-scope) forms are meant: the .cluster ones put a device-wide
   fence on every arrive. */
#pragma once
#include <cstdint>

#include "common/bound.cuh"

// 9.7.13.15.9 mbarrier.init
__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// 9.7.13.15.10 mbarrier.inval: its place may be used for something else
__device__ __forceinline__ void mbarrier_invalidate(uint32_t barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// 9.7.13.4 fence: makes initialised barriers visible to the copy engine
__device__ __forceinline__ void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

/* 9.7.13.15.13 mbarrier.arrive. It passes loads from shared memory that are still on their way: ptxas 13.0 has it wait for none, and what the copy engine
   brings thereupon was seen to overtake an ldmatrix (H200). So arrive behind what has used the values, or behind a fence_async_shared(). */
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// So many arrivals at once
__device__ __forceinline__ void mbarrier_arrive_as(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// 9.7.13.15.13 mbarrier.arrive.expect_tx: one arrival that also announces `bytes` of copies
__device__ __forceinline__ void mbarrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Whether the phase of this parity has ended
#define MBARRIER_LOOK(NAME, FORM)                                                       \
  __device__ __forceinline__ bool NAME(uint32_t barrier, uint32_t parity) {             \
    uint32_t done;                                                                      \
    asm volatile(                                                                       \
        "{\n.reg .pred p;\n"                                                            \
        "mbarrier." FORM ".shared::cta.b64 p, [%1], %2;\n"                              \
        "selp.u32 %0, 1, 0, p;\n}\n"                                                    \
        : "=r"(done)                                                                    \
        : "r"(barrier), "r"(parity)                                                     \
        : "memory");                                                                    \
    return done;                                                                        \
  }
// 9.7.13.15.16 mbarrier.try_wait, which may sleep for a while; of signals of a cluster, too, with what was written before them; mbarrier.test_wait,
// which does not wait
MBARRIER_LOOK(mbarrier_try_wait, "try_wait.parity")
MBARRIER_LOOK(cluster_try_wait, "try_wait.parity.acquire.cluster")
MBARRIER_LOOK(mbarrier_test_wait, "test_wait.parity")

__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  uint32_t tries = 0;
  while (!mbarrier_try_wait(barrier, parity))
    if (++tries > MOST_TRIES) __trap();
}

__device__ __forceinline__ void mbarrier_wait_or_fault(uint32_t barrier, uint32_t parity) {
  for (uint32_t tries = 0; !mbarrier_try_wait(barrier, parity);) bound<MOST_TRIES>(++tries);
}

// The place in a ring of STAGES buffers and the parity its barriers have there. Who fills waits for `parity ^ 1` at an empty barrier: of one that nobody has
// arrived at, the phase before counts as ended, so that the first round does not wait.
template <int STAGES>
struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) {
      stage = 0;
      parity ^= 1;
    }
  }
};
