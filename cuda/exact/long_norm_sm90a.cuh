/* LN1 and LN2 of the exact chain for many rows, a warp a row. Limiter: latency, so that all loads leave before any is waited for. */
#pragma once

#include "exact/exact_norm_sm90a.cuh"

namespace exact90 {

constexpr int LONG_NORM_THREADS = 128, LONG_BEGIN_THREADS = 512;  // the latter: of the kernel that begins with LN1

// h = LN1(x): rows first, first + step, .. by a warp
__device__ __forceinline__ void long_norm1(const ExactArgs& args, int first, int step) {
  const Memory memory(args);
  FirstNorm rows(args, first, step);
  const float scale = rows.norm.scale();
#pragma unroll 1
  for (int row = first; row < memory.rows; row += step) rows.write(memory, row, scale);
}

// h = LN2(x1). gamma and beta come before the wait for x1: a block of this kernel starts when those of the one before have waited for all others.
__device__ __forceinline__ void long_norm2(const ExactArgs& args) {
  const Memory memory(args);
  const int lane = threadIdx.x % 32, row = blockIdx.x * (LONG_NORM_THREADS / 32) + threadIdx.x / 32;
  const Norm norm(memory.vectors() + V_GAMMA2, memory.vectors() + V_BETA2, true, lane);
  const float scale = norm.scale();
  pdl_wait();
  if (row >= args.rows) return norm.write_zeros(memory.h(), row);
  Row x1;
  x1.fetch(memory.x1() + static_cast<size_t>(row) * D, lane);
  norm.write(x1, memory.h(), row, scale);
}

}  // namespace exact90
