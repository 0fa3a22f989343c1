/* What a thread has seen of the weights (alarm.cuh): fp32 ones are watched on their way through the registers, prepared
   ones were watched when they were cast. */
#pragma once

#include "common/pack.cuh"
#include "common/sync_sm90a.cuh"
#include "common/watch_sm90a.cuh"
#include "exact/wake_sm90a.cuh"
#include "small/layout.cuh"
#include "small/ptx.cuh"

namespace small {

/* What comes of alarms. Where the exact kernel follows, it looks itself. Where it sleeps (exact/wake_sm90a.cuh), it is
   up to the blocks that have raised one: the producer of each looks at all of them once its own are there, so the last
   to look sees all, and must_rescue() takes nothing back when there are more. The first to find that it must wakes the
   exact kernel. Nobody knows when all have looked, so calls take two sets of alarms in turns, and each clears the
   other's. While the exact kernel is awake from an earlier call, every block counts itself instead and the last one
   decides, because it may have to put it to sleep. */
struct Guard {
  const Wake* wake;
  uint32_t launches;  // as all blocks count them

  __device__ __forceinline__ unsigned* set(uint32_t call) const {
    return wake->exact.alarms + ALARMS_FEW + call % 2 * ALARMS;
  }
  // Where this call raises them
  __device__ __forceinline__ unsigned* alarms() const {
    return wake->node == nullptr ? wake->exact.alarms : set(launches);
  }
  __device__ __forceinline__ void clear_other() const {
    const int lane = threadIdx.x % 32;
    if (blockIdx.x == 0 && lane < ALARMS) set(launches + 1)[lane] = 0;
  }

  __device__ __forceinline__ unsigned call() const { return 2 * launches + 1; }

  // By one thread when all of this block's alarms are raised. `awake`: the call that has woken the exact kernel, or 0;
  // the same for all blocks where it was an earlier one, because its number stays until the last has counted itself.
  __device__ __forceinline__ void judge(bool loud, unsigned awake) const {
    if (wake->node == nullptr) return;
    const bool counts = awake != 0 && awake != call();
    if (counts) {
      unsigned* const counted = wake->exact.alarms + ALARMS_COUNTED;
      if (add_ordered(counted, 1) + 1 != gridDim.x) return;
      *counted = 0;
    } else {
      if (!loud) return pdl_launch();  // the GPU need not wait for the end of this block to pass over the node
      __threadfence();
    }
    bool any;
    unsigned* const alarms = this->alarms();
    const bool rescue = must_rescue(alarms, wake->exact.rule, any);
    if (counts)
      *wake->awake = rescue ? call() : 0;
    else if (!rescue || atomicExch(wake->awake, call()) == call())
      return;
    set_awake(*wake, rescue);
    if (rescue) set_param(*wake, offsetof(ExactArgs, alarms), &alarms, sizeof alarms);
    __threadfence();  // before this block lets its successor, the node, start
  }
};

/* What a computing thread sees of one matrix after the other. */
template <bool WATCH>
struct Watch {
  template <class Fragments>
  __device__ __forceinline__ void look(const Fragments&) {}
  template <class Shared>
  __device__ __forceinline__ void lay_down(Shared&, int) {}
};
template <>
struct Watch<true> {
  Observation seen;

  template <class Fragments>
  __device__ __forceinline__ void look(const Fragments& weights) {
    HalfObservation<> half;
    weights.each([&](uint2 b) { half.add(b.x, b.y); });
    half.move_to(seen);
  }
  // All of `matrix` has been seen
  template <class Shared>
  __device__ __forceinline__ void lay_down(Shared& shared, int matrix) {
    shared.seen[matrix][threadIdx.x] = make_float2(seen.largest, seen.squares);
    mbarrier_arrive(shared_address(&shared.watched[matrix]));  // each thread for itself, as racecheck wants it
    seen = Observation();
  }
};
template <class W>
using WatchOf = Watch<W::WATCHED>;

/* By the producer warp: the alarms that follow from what all threads lay down of `weights` numbers of a matrix. The
   launch ends with the last of these, so it is found out quickly whether there is one: the root comes before the wait,
   and divisions only with an alarm. */
__device__ __forceinline__ bool report(const float2 (&seen)[THREADS], uint64_t* watched, unsigned* alarms, int matrix,
                                       float weights) {
  const float most = weights * usual_squares(weights);
  barrier_wait(watched, 0);
  if (weights == 0) return false;
  Observation all;
#pragma unroll
  for (int w = 0; w < WARPS; ++w) {
    const float2 one = seen[32 * w + threadIdx.x % 32];
    all.largest = fmaxf(all.largest, one.x), all.squares += one.y;
  }
  float largest = all.largest, squares = all.squares;
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));
    squares += __shfl_xor_sync(0xffffffffu, squares, lanes);
  }
  if (TINY_WEIGHT <= largest && largest <= USUAL_WEIGHT && squares <= most) return false;
  return all.report(alarms, matrix, weights);
}

}  // namespace small
