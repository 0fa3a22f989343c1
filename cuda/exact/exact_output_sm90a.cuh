/* output = x1 + f W_proj + b_proj where W_proj's K is cut in QUARTERS and a block has one unit at most: of the blocks that share
   a tile each finishes a quarter of its columns, and so that quarter of its own part never goes to memory. The other quarters do
   as (tile, part, quarter, vector, thread), 16 bytes a thread. Limiter: writes, at 16 bytes a clock. */
#pragma once

#include "exact/exact_gemm_sm90a.cuh"

namespace exact90 {

constexpr int QUARTERS = 4;

// The blocks of the grid meet twice: enter() waits for the others before the product, leave() and enter() once more behind it.
template <class F, class Enter, class Leave>
__device__ __forceinline__ void product_to_output(Ring<WIDE_SLOTS>& at, uint32_t shared, const ExactArgs& args, float a_inverse, Enter enter,
                                                  Leave leave) {
  constexpr int VECTORS = F::BN / 8 / QUARTERS;
  const Units<F> units(padded_rows(args), D, FFN / 64, QUARTERS);
  const Spot<F> spot(units);
  const int tile = anew(units.tile());
  enter();
  const auto part_at = [&](int part, int quarter) {
    const int at = (tile * QUARTERS + part) * QUARTERS + quarter;
    return reinterpret_cast<float4*>(Memory(args).partial()) + at * (VECTORS * CONSUMERS) + thread_index();
  };
  float4 own[VECTORS];
  float2 bias[VECTORS], x1[2][VECTORS];
  if (units.more()) {
    float sum[F::BN / 2];
    int turn = 0;
    multiply_unit<F, false>(sum, turn, at, shared, args, true, units.k_blocks, spot);
#pragma unroll
    for (int quarter = 0; quarter < QUARTERS; quarter++) {
      float4* to = part_at(spot.part, quarter);
#pragma unroll
      for (int i = 0; i < VECTORS; i++) {
        const float* v = sum + 4 * (VECTORS * quarter + i);
        const float4 scaled = make_float4(v[0] * a_inverse, v[1] * a_inverse, v[2] * a_inverse, v[3] * a_inverse);
        if (quarter == spot.part)
          own[i] = scaled;
        else
          __stcg(to + i * CONSUMERS, scaled);
      }
    }
  }
  leave();
  if (!units.more()) return enter();
  const int thread = thread_index(), row = spot.row + thread / 32 * 16 + thread % 32 / 4;
  const int column = spot.column + spot.part * (8 * VECTORS) + thread % 4 * 2, first = row * D + column;  // of this thread's first value
  const float* residual = Memory(args).x1() + first;
  const float* biases = Memory(args).vectors() + V_B_PROJ + column;
#pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    bias[i] = __ldcg(reinterpret_cast<const float2*>(biases + 8 * i));
#pragma unroll
    for (int r = 0; r < 2; r++) x1[r][i] = __ldcg(reinterpret_cast<const float2*>(residual + 8 * r * D + 8 * i));
  }
  float* to = args.output + first;
  // Who would wait does all this once without loads and stores: instructions that run for the first time come from far away.
#pragma unroll 1
  for (int dry = anew(1);; dry = anew(0)) {
    float4 parts[QUARTERS][VECTORS];
#pragma unroll
    for (int part = 0; part < QUARTERS; part++) {
      const float4* from = part_at(part, spot.part);
#pragma unroll
      for (int i = 0; i < VECTORS; i++) {
        parts[part][i] = own[i];
        if (part != spot.part && !dry) parts[part][i] = __ldcg(from + i * CONSUMERS);
      }
    }
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
      float4 sum = make_float4(bias[i].x, bias[i].y, bias[i].x, bias[i].y);  // as finish_rows does it, which has fewer blocks
#pragma unroll
      for (int part = 0; part < QUARTERS; part++) add(sum, parts[part][i]);
      const float2 top = make_float2(sum.x + x1[0][i].x, sum.y + x1[0][i].y), bottom = make_float2(sum.z + x1[1][i].x, sum.w + x1[1][i].y);
      if (row < args.rows && !dry) *reinterpret_cast<float2*>(to + 8 * i) = top;
      if (row + 8 < args.rows && !dry) *reinterpret_cast<float2*>(to + 8 * D + 8 * i) = bottom;
    }
    if (!dry) return;
    enter();
  }
}

}  // namespace exact90
