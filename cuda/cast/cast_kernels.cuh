/* The first launch: the weights to fp16, and LN1 of x. Grid ceil(rows / 8) + CAST_BLOCKS (877), 256 threads, no shared
   memory. See cast.cuh and layernorm.cuh. */
#pragma once
#include "cast/cast.cuh"

static_assert(CAST_THREADS == LAYERNORM_THREADS, "one grid");

extern "C" __global__ void __launch_bounds__(CAST_THREADS)
    cast_layernorm_f16(const float* __restrict__ weights,  // (WEIGHTS_LEN), 4-byte aligned
                       __half* __restrict__ packed,        // (PACKED_LEN)
                       float* __restrict__ vectors,        // (VECTORS_LEN)
                       const float* __restrict__ x,        // (rows, D)
                       __half* __restrict__ h,             // (rows, D)
                       int rows,
                       unsigned* __restrict__ alarms,  // [ALARMS], or null: see alarm.cuh
                       float* __restrict__ x_copy) {   // (rows, D): x once more, or null
  if (reinterpret_cast<size_t>(weights) % 16 == 0)
    cast_or_layernorm<true>(weights, packed, vectors, x, h, rows, alarms, x_copy);
  else
    cast_or_layernorm<false>(weights, packed, vectors, x, h, rows, alarms, x_copy);
}
