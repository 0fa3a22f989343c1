/* What the blocks without a slice of W_qkv do while the others have one, or all blocks where they are too few. */
#pragma once

#include "small/layout.cuh"
#include "small/ptx.cuh"

namespace small {

struct Bystander {
  int index, count;  // this one; how many

  __device__ __forceinline__ explicit Bystander(int busy) {
    const int grid = gridDim.x, spare = grid - busy;
    index = spare > 0 ? static_cast<int>(blockIdx.x) - busy : blockIdx.x, count = spare > 0 ? spare : grid;
  }

  // Of x, before output is written, which may be its memory: no block writes any before all have sent their part, and
  // this one's comes later.
  __device__ __forceinline__ void save(const float* x, float* to, int rows) const {
    if (index < 0) return;
    for (int i = index * THREADS + threadIdx.x; i < rows * D / 4; i += count * THREADS)
      reinterpret_cast<float4*>(to)[i] = load_early(x + 4 * i);
  }

  // The vectors that make the operands of products large; those of the residual stream overflow nothing.
  __device__ __forceinline__ void watch(const Vectors& v, unsigned* alarms, unsigned& loud) const {
    if (index < 0) return;
    const int lane = threadIdx.x % 32;
    for (int i = 32 * (index * WARPS + threadIdx.x / 32); i < 4 * D + QKV + FFN; i += 32 * count * WARPS) {
      const auto look = [&](const float* p, int alarm) {
        const unsigned bits = __float_as_uint(load_early_word(p + lane)) & 0x7fffffffu;
        const float largest = __uint_as_float(warp_max(bits));
        if (lane == 0 && raise_vector(alarms, alarm, largest)) loud = 1;
      };
      const int beta = i / D % 2;
      if (i < 2 * D)
        look(v.norm1 + i, beta ? ALARM_BETA1 : ALARM_GAMMA1);
      else if (i < 4 * D)
        look(v.norm2 + i - 2 * D, beta ? ALARM_BETA2 : ALARM_GAMMA2);
      else if (i < 4 * D + QKV)
        look(v.b_qkv + i - 4 * D, ALARM_B_QKV);
      else
        look(v.b_fc + i - 4 * D - QKV, ALARM_B_FC);
    }
  }
};

}  // namespace small
