/* output = x1 + f W_proj + b_proj where W_proj's K is cut in QUARTERS and a block has one unit at most: of the blocks that share
   a tile each finishes a quarter of its columns, and so that quarter of its own part never goes to memory. The other quarters do
   as (tile, part, quarter, vector, thread), 16 bytes a thread. Limiter: writes, at 16 bytes a clock. */
#pragma once

#include "exact/exact_gemm_sm90a.cuh"

namespace exact90 {

constexpr int QUARTERS = 4;

// meet(meanwhile) calls meanwhile() and returns when all blocks have come to it.
template <class Meet>
__device__ __forceinline__ void product_to_output(Ring<WIDE_SLOTS>& at, uint32_t shared, const ExactArgs& args, float a_inverse, Meet meet) {
  using F = Wide;
  constexpr int VECTORS = F::BN / 8 / QUARTERS;
  const Units<F> units(padded_rows(args), D, FFN / 64, QUARTERS);
  const auto part_at = [&](int part, int quarter) {
    const int at = (units.tile() * QUARTERS + part) * QUARTERS + quarter;
    return reinterpret_cast<float4*>(Memory(args).partial()) + at * (VECTORS * CONSUMERS) + thread_index();
  };
  float4 parts[QUARTERS][VECTORS];
  float2 bias[VECTORS], x1[2][VECTORS];
  if (units.more()) {
    float sum[F::BN / 2];
    int turn = 0;
    multiply_unit<F>(sum, turn, at, shared, args, true, units);
#pragma unroll
    for (int quarter = 0; quarter < QUARTERS; quarter++) {
      float4* to = part_at(units.part(), quarter);
#pragma unroll
      for (int i = 0; i < VECTORS; i++) {
        const float* v = sum + 4 * (VECTORS * quarter + i);
        const float4 scaled = make_float4(v[0] * a_inverse, v[1] * a_inverse, v[2] * a_inverse, v[3] * a_inverse);
        if (quarter == units.part())
          parts[0][i] = scaled;  // for the time being
        else
          __stcg(to + i * CONSUMERS, scaled);
      }
    }
  }
  const auto first = [&] {  // where this thread's first value belongs
    const int thread = thread_index(), row = units.row() + thread / 32 * 16 + thread % 32 / 4;
    return row * D + units.column() + units.part() * (8 * VECTORS) + thread % 4 * 2;
  };
  meet([&] {
    if (!units.more()) return;
    const float* residual = Memory(args).x1() + first();
    const float* biases = Memory(args).vectors() + V_B_PROJ + first() % D;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
      bias[i] = __ldcg(reinterpret_cast<const float2*>(biases + 8 * i));
#pragma unroll
      for (int r = 0; r < 2; r++) x1[r][i] = __ldcg(reinterpret_cast<const float2*>(residual + 8 * r * D + 8 * i));
    }
  });
  if (!units.more()) return;
#pragma unroll
  for (int part = QUARTERS - 1; part >= 0; part--) {
    const float4* from = part_at(part, units.part());
#pragma unroll
    for (int i = 0; i < VECTORS; i++)
      if (part == units.part())
        parts[part][i] = parts[0][i];
      else
        parts[part][i] = __ldcg(from + i * CONSUMERS);
  }
  float* to = args.output + first();
  const int row = first() / D;
#pragma unroll
  for (int i = 0; i < VECTORS; i++) {
    float4 sum = make_float4(bias[i].x, bias[i].y, bias[i].x, bias[i].y);  // as finish_rows does it, which has fewer blocks
#pragma unroll
    for (int part = 0; part < QUARTERS; part++) add(sum, parts[part][i]);
    if (row < args.rows) *reinterpret_cast<float2*>(to + 8 * i) = make_float2(sum.x + x1[0][i].x, sum.y + x1[0][i].y);
    if (row + 8 < args.rows) *reinterpret_cast<float2*>(to + 8 * D + 8 * i) = make_float2(sum.z + x1[1][i].x, sum.w + x1[1][i].y);
  }
}

}  // namespace exact90
