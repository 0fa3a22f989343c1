/* How much of a block's weights is on its way at a time. L2 hands out 28 bytes a clock and SM while all of them ask
   (H100), and activations that a block polls stand in line behind its weights. So not all weights are asked for at once
   but part by part, one when that AHEAD parts before has arrived: enough to keep the line busy, little enough to wait
   behind. */
#pragma once

#include "small/ptx.cuh"

namespace small {

template <int AHEAD, int UNROLL_>
class Pace {
  uint64_t* asked[AHEAD] = {};

 public:
  static constexpr int UNROLL = UNROLL_;  // of the loop over parts

  // By the whole warp, before it asks for what arrives at `bar`. For a barrier's first use only
  __device__ __forceinline__ void wait(uint64_t* bar) {
    if (asked[0]) barrier_wait(asked[0], 0);
#pragma unroll
    for (int i = 0; i + 1 < AHEAD; ++i) asked[i] = asked[i + 1];
    asked[AHEAD - 1] = bar;
  }
};
struct AtOnce {
  static constexpr int UNROLL = 1;
  __device__ __forceinline__ void wait(uint64_t*) {}
};

}  // namespace small
