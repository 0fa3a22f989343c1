/* What a thread has seen of the weights (alarm.cuh): fp32 ones are watched on their way through the registers, prepared
   ones were watched when they were cast. */
#pragma once

#include "common/watch_sm90a.cuh"
#include "small/exchange.cuh"
#include "small/layout.cuh"

namespace small {

struct Blind {
  __device__ __forceinline__ void add(uint32_t, uint32_t) {}
  __device__ __forceinline__ bool is_zero() const { return false; }
};
template <bool WATCH>
struct Watch {
  static constexpr bool WATCHES = false;
  using Look = Blind;
  template <class S, int TIMES>
  __device__ __forceinline__ void take(Blind&) {}
  __device__ __forceinline__ void lay_down(void*) const {}
  __device__ __forceinline__ void report(const void*, unsigned*, bool, uint32_t&, Exchange&) {}
};
template <>
struct Watch<true> {
  static constexpr bool WATCHES = true;
  static constexpr int REPORTERS = 4;  // warps, the last ones: one for each matrix
  using Look = HalfObservation;
  Observation seen[4];
  int count[4] = {0, 0, 0, 0};  // by all warps

  template <class S, int TIMES>  // TIMES warps read the same
  __device__ __forceinline__ void take(HalfObservation& look) {
    look.move_to(seen[S::Matrix::ALARM]);
    count[S::Matrix::ALARM] += S::ROWS * S::WIDTH * TIMES;
  }
  // The reporters, which have nothing to finish when rows are few, report for all warps.
  __device__ __forceinline__ void lay_down(void* to) const {
#pragma unroll
    for (int m = 0; m < 4; ++m)
      static_cast<float2*>(to)[m * THREADS + threadIdx.x] = make_float2(seen[m].largest, seen[m].squares);
  }
  // `last`: nothing more will come, and somebody wants to know. Then the last of the reporters says in the exchange area
  // what this CTA has to say.
  __device__ __forceinline__ void report(const void* from, unsigned* alarms, bool last, uint32_t& said,
                                         Exchange& exchange) {
    const int matrix = static_cast<int>(threadIdx.x / 32) - (WARPS - REPORTERS);
    if (matrix >= 0) {
      int weights = 0;
#pragma unroll
      for (int m = 0; m < 4; ++m) weights = m == matrix ? count[m] : weights;
      bool raised = false;
      if (weights) {
        Observation all;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) {
          const float2 one = static_cast<const float2*>(from)[matrix * THREADS + 32 * w + threadIdx.x % 32];
          all.largest = fmaxf(all.largest, one.x), all.squares += one.y;
        }
        raised = all.report(alarms, matrix, weights);
      }
      if (threadIdx.x % 32 == 0) {
        if (raised) atomicOr(&said, LOUD);
        if (last) {
          const uint32_t before = atomicAdd(&said, 1);
          if (before % LOUD == REPORTERS - 1) say(exchange.said, before >= LOUD);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < 4; ++m) seen[m] = Observation(), count[m] = 0;
  }
};
template <class W>
using WatchOf = Watch<sizeof(typename W::Element) == 4>;

// Whether the CTAs decide themselves if the result stands, in the kernel of MT tiles of 16 rows.
template <int MT, class W>
constexpr bool DECIDES = MT == 1 && WatchOf<W>::WATCHES;

}  // namespace small
