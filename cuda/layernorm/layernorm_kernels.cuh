/* LN2: h = LayerNorm(x1); and LN1 where the weights are prepared. Grid ceil(rows / 8), 256 threads, no shared memory.
   See layernorm.cuh. */
#pragma once
#include "layernorm/layernorm.cuh"

extern "C" __global__ void __launch_bounds__(LAYERNORM_THREADS)
    layernorm_f16(const float* __restrict__ x1,     // (rows, D)
                  const float* __restrict__ gamma,  // (D), 16-byte aligned
                  const float* __restrict__ beta,   // (D), 16-byte aligned
                  __half* __restrict__ h,           // (rows, D)
                  int rows,
                  float* __restrict__ x_copy) {  // (rows, D): the input once more, or null
  layernorm_block<true>(blockIdx.x, x1, gamma, beta, h, rows, x_copy);
}
