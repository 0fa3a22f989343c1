/* What a thread has seen of the weights (alarm.cuh): fp32 ones are watched on their way through the registers, prepared
   ones were watched when they were cast. */
#pragma once

#include "common/watch_sm90a.cuh"
#include "exact/wake_sm90a.cuh"
#include "small/layout.cuh"

namespace small {

struct Blind {
  __device__ __forceinline__ void add(uint32_t, uint32_t) {}
};
template <bool WATCH>
struct Watch {
  using Look = Blind;
  template <class S, int TIMES>
  __device__ __forceinline__ void take(Blind&) {}
  __device__ __forceinline__ void lay_down(void*) const {}
  __device__ __forceinline__ void report(const void*, unsigned*) {}
};
template <>
struct Watch<true> {
  using Look = HalfObservation;
  Observation seen[4];
  int count[4] = {0, 0, 0, 0};  // by all warps

  template <class S, int TIMES>  // TIMES warps read the same
  __device__ __forceinline__ void take(HalfObservation& look) {
    look.move_to(seen[S::Matrix::ALARM]);
    count[S::Matrix::ALARM] += S::ROWS * S::WIDTH * TIMES;
  }
  // The last four warps, which have nothing to finish when rows are few, report for all of them.
  __device__ __forceinline__ void lay_down(void* to) const {
#pragma unroll
    for (int m = 0; m < 4; ++m)
      static_cast<float2*>(to)[m * THREADS + threadIdx.x] = make_float2(seen[m].largest, seen[m].squares);
  }
  __device__ __forceinline__ void report(const void* from, unsigned* alarms) {
    const int matrix = static_cast<int>(threadIdx.x / 32) - (WARPS - 4);
    int weights = 0;
#pragma unroll
    for (int m = 0; m < 4; ++m) weights = m == matrix ? count[m] : weights;
    if (weights && alarms) {
      Observation all;
#pragma unroll
      for (int w = 0; w < WARPS; ++w) {
        const float2 one = static_cast<const float2*>(from)[matrix * THREADS + 32 * w + threadIdx.x % 32];
        all.largest = fmaxf(all.largest, one.x), all.squares += one.y;
      }
      all.report(alarms, matrix, weights);
    }
#pragma unroll
    for (int m = 0; m < 4; ++m) seen[m] = Observation(), count[m] = 0;
  }
};
// At the end: the last CTA whose warps have reported wakes the exact kernel where that sleeps.
__device__ __forceinline__ void last_to_watch(const Wake& wake, unsigned* alarms) {
  if (wake.node == 0 || threadIdx.x < THREADS - 128) return;
  asm volatile("bar.sync 1, 128;" ::: "memory");  // PTX ISA 9.0, 9.7.13.1: with the other warps that report
  if (threadIdx.x != THREADS - 1) return;
  unsigned* const watched = alarms + ALARMS_WATCHED;
  unsigned before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(watched) : "memory");  // 9.7.13.7
  if (before + 1 != gridDim.x) return;
  *watched = 0;
  wake_if_needed(wake);
}

template <class W>
using WatchOf = Watch<sizeof(typename W::Element) == 4>;

}  // namespace small
