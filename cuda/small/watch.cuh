/* What a thread has seen of the weights (alarm.cuh): fp32 ones are watched on their way through the registers, prepared
   ones were watched when they were cast. */
#pragma once

#include "common/sync_sm90a.cuh"
#include "common/watch_sm90a.cuh"
#include "exact/wake_sm90a.cuh"
#include "small/layout.cuh"
#include "small/ptx.cuh"

namespace small {

/* What comes of alarms. Where the exact kernel follows, it looks itself. Where it sleeps (exact/wake_sm90a.cuh), it is
   up to the threads that have raised one: each looks at all of them once its own is there, so the last to look sees
   all, and must_rescue() takes nothing back when there are more. The first to find that it must wakes the exact kernel.
   Nobody knows when all have looked, so calls take two sets of alarms in turns, and each clears the other's. While the
   exact kernel is awake from an earlier call, every CTA counts itself instead and the last one decides, because it may
   have to put it to sleep. */
struct Guard {
  const Wake* wake;       // null: nobody watches
  unsigned* loud;         // in shared memory, 0 at first: this CTA has raised an alarm
  uint32_t launches = 0;  // as all CTAs count them
  unsigned awake = 0;
  bool raised = false;  // an alarm, by this thread

  __device__ __forceinline__ Guard(const Wake* wake, unsigned* loud) : wake(wake), loud(loud) {
    if (wake != nullptr && wake->node != nullptr) awake = load_strong_word(wake->awake);
  }

  __device__ __forceinline__ unsigned* set(uint32_t call) const { return wake->exact.alarms + ALARMS_FEW + call % 2 * ALARMS; }
  // Where this call raises them
  __device__ __forceinline__ unsigned* alarms() const { return wake->node == nullptr ? wake->exact.alarms : set(launches); }
  __device__ __forceinline__ void clear_other() const {
    if (wake != nullptr && blockIdx.x == 0 && threadIdx.x < ALARMS) set(launches + 1)[threadIdx.x] = 0;
  }

  __device__ __forceinline__ unsigned call() const { return 2 * launches + 1; }
  // Whether it is awake from an earlier call; all threads find the same, because an earlier one's number stays until the last CTA has counted itself.
  __device__ __forceinline__ bool counts() const { return awake != 0 && awake != call(); }

  __device__ __forceinline__ void note(bool raised_now) {
    if (!raised_now) return;
    raised = true;
    *loud = 1;
  }
  // When all of this CTA's are raised, by the warps that report: if there are none, the GPU need not wait for the end
  // of this CTA to pass over the node.
  __device__ __forceinline__ void let_pass() const {
    if (wake->node == nullptr || counts()) return;
    named_barrier_sync(1, 128);
    if (threadIdx.x == THREADS - 1 && *loud == 0) pdl_launch();
  }
  // At the end
  __device__ __forceinline__ void judge() const {
    if (wake == nullptr || wake->node == nullptr) return;
    if (counts()) {
      if (threadIdx.x < THREADS - 128) return;
      named_barrier_sync(1, 128);  // the warps that report
      if (threadIdx.x != THREADS - 1) return;
      unsigned* const counted = wake->exact.alarms + ALARMS_COUNTED;
      if (add_ordered(counted, 1) + 1 != gridDim.x) return;
      *counted = 0;
    } else {
      if (!raised) return;
      __threadfence();
    }
    bool any;
    unsigned* const alarms = this->alarms();
    const bool rescue = must_rescue(alarms, wake->exact.rule, any);
    if (counts())
      *wake->awake = rescue ? call() : 0;
    else if (!rescue || atomicExch(wake->awake, call()) == call())
      return;
    set_awake(*wake, rescue);
    if (rescue) set_param(*wake, offsetof(ExactArgs, alarms), &alarms, sizeof alarms);
    __threadfence();  // before this block lets its successor, the node, start
  }
};

struct Blind {
  __device__ __forceinline__ void add(uint32_t, uint32_t) {}
};
template <bool WATCH>
struct Watch {
  using Look = Blind;
  template <class S, int TIMES>
  __device__ __forceinline__ void take(Blind&) {}
  __device__ __forceinline__ void lay_down(void*) const {}
  __device__ __forceinline__ void report(const void*, Guard&, bool) {}
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
  __device__ __forceinline__ void report(const void* from, Guard& guard, bool last) {
    const int matrix = static_cast<int>(threadIdx.x / 32) - (WARPS - 4);
    int weights = 0;
#pragma unroll
    for (int m = 0; m < 4; ++m) weights = m == matrix ? count[m] : weights;
    if (weights) {
      Observation all;
#pragma unroll
      for (int w = 0; w < WARPS; ++w) {
        const float2 one = static_cast<const float2*>(from)[matrix * THREADS + 32 * w + threadIdx.x % 32];
        all.largest = fmaxf(all.largest, one.x), all.squares += one.y;
      }
      guard.note(all.report(guard.alarms(), matrix, weights));
    }
#pragma unroll
    for (int m = 0; m < 4; ++m) seen[m] = Observation(), count[m] = 0;
    if (last && matrix >= 0) guard.let_pass();
  }
};
template <class W>
using WatchOf = Watch<sizeof(typename W::Element) == 4>;

}  // namespace small
