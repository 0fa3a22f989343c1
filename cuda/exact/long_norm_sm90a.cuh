/* The rows between the products of the exact chain for many rows, a warp a row: sums of a product's parts, and LN2. Limiter: latency, so that all loads leave
   before any is waited for. */
#pragma once

#include "exact/exact_norm_sm90a.cuh"

namespace exact90 {

constexpr int LONG_NORM_THREADS = 128, LONG_BEGIN_THREADS = 512;  // the latter: of the kernel that begins with LN1

// residual + bias + the parts of a product in a row
__device__ __forceinline__ Row long_sum(const Memory& memory, const float* residual, const float* bias, int splits, int row, int lane) {
  const float* part = memory.partial() + static_cast<size_t>(row) * D;
  const size_t step = static_cast<size_t>(memory.rows) * D;
  Row sum, x, parts[2];
  x.fetch(residual + static_cast<size_t>(row) * D, lane);
  sum.fetch(bias, lane);
#pragma unroll 1
  for (int s = 0; s < splits; s += 2) {
#pragma unroll
    for (int i = 0; i < 2; i++)
      if (s + i < splits) parts[i].fetch(part + (s + i) * step, lane);
#pragma unroll
    for (int i = 0; i < 2; i++)
      if (s + i < splits) sum.add_row(parts[i]);
  }
  sum.add_row(x);
  return sum;
}

__device__ __forceinline__ void store_row(float* to, const Row& x, int lane) {
#pragma unroll
  for (int i = 0; i < PIECES; i++) __stcg(reinterpret_cast<float4*>(to + 128 * i + 4 * lane), x.v[i]);
}

__device__ __forceinline__ int long_row() { return blockIdx.x * (LONG_NORM_THREADS / 32) + threadIdx.x / 32; }

// h = LN1(x): rows first, first + step, .. by a warp
__device__ __forceinline__ void long_norm1(const ExactArgs& args, int first, int step) {
  const Memory memory(args);
  const bool cast = args.phases & EXACT_CAST;
  const float *gamma = cast ? args.weights + GAMMA1 : memory.vectors() + V_GAMMA1, *beta = gamma + D;
  const int lane = threadIdx.x % 32;
  Row next;
  next.fetch(args.x + static_cast<size_t>(min(first, args.rows - 1)) * D, lane);
  const Norm norm(gamma, beta, reinterpret_cast<size_t>(gamma) % 16 == 0, lane);
  const float scale = norm.scale();
#pragma unroll 1
  for (int row = first; row < memory.rows; row += step) {
    Row x = next;
    if (row + step < args.rows) next.fetch(args.x + static_cast<size_t>(row + step) * D, lane);
    if (row < args.rows)
      norm.write(x, memory.h(), row, scale);
    else
      norm.write_zeros(memory.h(), row);
  }
}

// x1 = x + attention W_attn + b_attn, h = LN2(x1)
__device__ __forceinline__ void long_norm2(const ExactArgs& args, int splits) {
  const Memory memory(args);
  const int lane = threadIdx.x % 32, row = long_row();
  if (row >= memory.rows) return;
  const Norm norm(memory.vectors() + V_GAMMA2, memory.vectors() + V_BETA2, true, lane);
  if (row >= args.rows) return norm.write_zeros(memory.h(), row);
  Row x1 = long_sum(memory, args.x, memory.vectors() + V_B_ATTN, splits, row, lane);
  store_row(memory.x1() + static_cast<size_t>(row) * D, x1, lane);
  norm.write(x1, memory.h(), row, norm.scale());
}

// output = x1 + f W_proj + b_proj
__device__ __forceinline__ void long_output(const ExactArgs& args, int splits) {
  const Memory memory(args);
  const int lane = threadIdx.x % 32, row = long_row();
  if (row >= args.rows) return;
  const Row sum = long_sum(memory, memory.x1(), memory.vectors() + V_B_PROJ, splits, row, lane);
  store_row(args.output + static_cast<size_t>(row) * D, sum, lane);
}

}  // namespace exact90
