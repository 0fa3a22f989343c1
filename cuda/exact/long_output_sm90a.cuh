/* The end of the projections of the exact block of many rows where few blocks share a tile: their sums, bias and residual become x1, or output, without a way
   through memory. Limiter: reads and writes, at 16 bytes a clock. */
#pragma once

#include "exact/exact_gemm_sm90a.cuh"

namespace exact90 {

// Between the stages of the block: to = residual + a product + bias, (rows, D) each but for the bias
struct LongResidual {
  const float *residual, *bias;
  float* to;
  int rows;

  static __device__ __forceinline__ LongResidual of_attention(const ExactArgs& args) {
    const Memory memory(args);
    return {args.x, memory.vectors() + V_B_ATTN, memory.x1(), args.rows};
  }
  static __device__ __forceinline__ LongResidual of_output(const ExactArgs& args) {
    const Memory memory(args);
    return {memory.x1(), memory.vectors() + V_B_PROJ, args.output, args.rows};
  }
};

// Of a warp's 16 rows from `first_row` on so many columns from `column` on; the product is sum * scale. Whole lines by way of the warp's box, 32 columns at a
// time, and what is left by pairs of columns.
template <int COLUMNS>
__device__ __forceinline__ void finish_long_rows(uint32_t shared, const LongResidual& of, int first_row, int column, const float (&sum)[COLUMNS / 2],
                                                 float scale) {
  constexpr int HALVES = COLUMNS / 32;
  const int thread = thread_index(), lane = thread % 32, top = first_row + lane / 8;
  const uint32_t box = shared + S_BOX + thread / 32 * BOX_BYTES;
  const size_t at = static_cast<size_t>(top) * D + column + lane % 8 * 4;
  const float *residual = of.residual + at, *bias = of.bias + column + lane % 8 * 4;
  float4 old[2][4];
  const auto fetch = [&](int half) {
#pragma unroll
    for (int i = 0; i < 4; i++) old[half % 2][i] = top + 4 * i < of.rows ? load_4(residual + 4 * i * D + 32 * half) : make_float4(0.f, 0.f, 0.f, 0.f);
  };
  fetch(0);
#pragma unroll
  for (int half = 0; half < HALVES; half++) {
    const float4 b = load_4(bias + 32 * half);
    if (half + 1 < HALVES) fetch(half + 1);
    __syncwarp();
    fill_box(box, lane, sum + 16 * half, scale);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float4 v = load_shared_4(box + swizzle_128(4 * i + lane / 8, lane % 8));
      add(v, b);
      add(v, old[half % 2][i]);
      if (top + 4 * i < of.rows) __stcg(reinterpret_cast<float4*>(of.to + at + 4 * i * D + 32 * half), v);
    }
  }
#pragma unroll
  for (int i = 4 * HALVES; i < COLUMNS / 8; i++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const int row = first_row + lane / 4 + 8 * r, n = column + 8 * i + lane % 4 * 2;
      if (row >= of.rows) continue;
      const size_t place = static_cast<size_t>(row) * D + n;
      const float2 x = __ldcg(reinterpret_cast<const float2*>(of.residual + place)), b = __ldcg(reinterpret_cast<const float2*>(of.bias + n));
      __stcg(reinterpret_cast<float2*>(of.to + place), make_float2(sum[4 * i + 2 * r] * scale + b.x + x.x, sum[4 * i + 2 * r + 1] * scale + b.y + x.y));
    }
}

}  // namespace exact90
