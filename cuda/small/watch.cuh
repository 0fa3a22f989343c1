/* What a thread has seen of the weights (alarm.cuh): fp32 ones are watched on their way through the registers, prepared
   ones were watched when they were cast. */
#pragma once

#include "common/sync_sm90a.cuh"
#include "common/watch_sm90a.cuh"
#include "exact/exact.cuh"
#include "small/exchange.cuh"
#include "small/layout.cuh"

namespace small {

/* What comes of alarms. Each block counts itself when its own are raised, and looks at all of them when all blocks
   have. W_proj has been seen before f is there, so the counts cross while f and the sums of proj do: from 12 rows on
   they cost nothing, 2 to 8 rows wait 0.35 to 0.45 us for them (H200, fae1756c). Calls take two sets of alarms in
   turns, and each clears the other one. */
class Verdict {
  const ExactArgs& call;
  uint32_t turn;

  __device__ __forceinline__ unsigned* set(uint32_t turn) const { return call.alarms + ALARMS_FEW + turn * ALARMS; }
  __device__ __forceinline__ unsigned* counted(uint32_t turn) const { return call.alarms + ALARMS_COUNTED + turn; }

 public:
  // `watched`: launches before this one that were
  __device__ __forceinline__ Verdict(const ExactArgs& call, uint32_t watched) : call(call), turn(watched % 2) {}

  __device__ __forceinline__ unsigned* alarms() const { return set(turn); }
  __device__ __forceinline__ void clear_other() const {
    const int lane = threadIdx.x % 32;
    if (blockIdx.x == 0 && lane <= ALARMS) *(lane < ALARMS ? set(1 - turn) + lane : counted(1 - turn)) = 0;
  }

  // By one thread when all of this block's are raised: whether the call must be computed again
  __device__ __forceinline__ bool reach(bool loud) const {
    unsigned* const counted = this->counted(turn);
    if (loud)
      add_released(counted, WATCHED_RAISED + 1);
    else
      add_strong(counted, 1);  // who has nothing to tell need not wait until it is known
    unsigned blocks;
    for (uint32_t polls = 0; (blocks = load_strong_word(counted)) % WATCHED_RAISED != gridDim.x; ++polls)
      if (polls > PATIENCE) __trap();
    if (blocks < WATCHED_RAISED) return false;
    __threadfence();  // the looks were relaxed: only who must read the alarms acquires
    bool raised;
    return must_rescue(alarms(), call.rule, raised);
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
