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

// Of a warp's 16 rows from `first_row` on so many columns from `column` on. Whole lines by way of the warp's box, 32 columns at a time, for AHEAD of which bias
// and residual are on their way, and what is left by pairs of columns.
template <int COLUMNS, int AHEAD_>
struct LongRows {
  static constexpr int BOXES = COLUMNS / 32, AHEAD = AHEAD_ < BOXES ? AHEAD_ : BOXES, OCTETS = COLUMNS / 8 - 4 * BOXES;
  static constexpr int PLACES = AHEAD > 0 ? AHEAD : 1;  // never used where there are no BOXES
  LongResidual of;
  int first_row, column;
  float4 old[PLACES][4], bias[PLACES];
  float2 old_pairs[OCTETS + 1][2], bias_pairs[OCTETS + 1];  // the last one never used: there may be no OCTETS

  __device__ __forceinline__ int row(int i) const { return first_row + thread_index() % 32 / 8 + 4 * i; }
  __device__ __forceinline__ int box_column(int box) const { return column + thread_index() % 8 * 4 + 32 * box; }
  __device__ __forceinline__ int pair_row(int r) const { return first_row + thread_index() % 32 / 4 + 8 * r; }
  __device__ __forceinline__ int pair_column(int i) const { return column + 32 * BOXES + 8 * i + thread_index() % 4 * 2; }

  __device__ __forceinline__ void fetch_box(int box) {
    const float* const from = of.residual + static_cast<size_t>(row(0)) * D + box_column(box);
    bias[box % PLACES] = load_4(of.bias + box_column(box));
#pragma unroll
    for (int i = 0; i < 4; i++) old[box % PLACES][i] = row(i) < of.rows ? load_4(from + 4 * i * D) : make_float4(0.f, 0.f, 0.f, 0.f);
  }
  __device__ __forceinline__ void fetch() {
#pragma unroll
    for (int box = 0; box < AHEAD; box++) fetch_box(box);
#pragma unroll
    for (int i = 0; i < OCTETS; i++) {
      bias_pairs[i] = __ldcg(reinterpret_cast<const float2*>(of.bias + pair_column(i)));
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const float* const from = of.residual + static_cast<size_t>(pair_row(r)) * D + pair_column(i);
        old_pairs[i][r] = pair_row(r) < of.rows ? __ldcg(reinterpret_cast<const float2*>(from)) : make_float2(0.f, 0.f);
      }
    }
  }
  // The product is sum * scale.
  __device__ __forceinline__ void finish(uint32_t shared, const float (&sum)[COLUMNS / 2], float scale) {
    const int thread = thread_index(), lane = thread % 32;
    const uint32_t at = shared + S_BOX + thread / 32 * BOX_BYTES;
#pragma unroll
    for (int box = 0; box < BOXES; box++) {
      __syncwarp();
      fill_box(at, lane, sum + 16 * box, scale);
      __syncwarp();
      float* const to = of.to + static_cast<size_t>(row(0)) * D + box_column(box);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float4 v = load_shared_4(at + swizzle<128>(4 * i + lane / 8, lane % 8));
        add(v, bias[box % PLACES]);
        add(v, old[box % PLACES][i]);
        if (row(i) < of.rows) __stcg(reinterpret_cast<float4*>(to + 4 * i * D), v);
      }
      if (box + AHEAD < BOXES) fetch_box(box + AHEAD);
    }
#pragma unroll
    for (int i = 0; i < OCTETS; i++)
#pragma unroll
      for (int r = 0; r < 2; r++) {
        if (pair_row(r) >= of.rows) continue;
        const float* const v = sum + 16 * BOXES + 4 * i + 2 * r;
        const float2 b = bias_pairs[i], x = old_pairs[i][r];
        float* const to = of.to + static_cast<size_t>(pair_row(r)) * D + pair_column(i);
        __stcg(reinterpret_cast<float2*>(to), make_float2(v[0] * scale + b.x + x.x, v[1] * scale + b.y + x.y));
      }
  }
};

}  // namespace exact90
