/* LN2 without an exchange between the blocks of a row, for prepared weights. gamma2 is in W_fc, whose columns have mean zero, and beta2 in b_fc
   (cast/fold_layernorm2_sm90a.cu). So FC wants x1 times any scale, less any number that is the same for a row: the centre, which x1's mean is not
   far from (or W_attn raises an alarm), keeps fp16's bits, and the scale, a power of two within a factor of some hundreds of the reciprocal spread,
   its range. The first kernel of the chain knows both. What LN2 divides by comes behind the product, from sums that the attention projection leaves. */
#pragma once
#include "dims.h"

struct alignas(8) RowFacts {
  float centre, scale;
};
// Of x1 - centre, over the columns of a tile
struct alignas(8) RowPart {
  float sum, squares;
};
constexpr int ROW_PARTS = 8;  // a row has room for

// What every row has in common, of the weights: the mean of b_attn, and about the variance that attention adds to x
struct alignas(8) ResidualFacts {
  float mean, variance;
};

/* However the weights are aligned with each other, what attention adds spreads at most 768 times as far as that (each of two matrices stretches a
   vector by at most 768^.5 times what it does to a usual one), and no number of a row is farther from its mean than 768^.5 times the spread: below
   2^15. Not 0 either, which an infinite variance would make of it: LN2 is beta2 then, as the factor is 0. */
__device__ __forceinline__ RowFacts row_facts(float mean, float variance, ResidualFacts residual) {
  const float rstd = rsqrtf(variance + residual.variance + LN_EPS);
  return {mean + residual.mean, __uint_as_float(max(__float_as_uint(rstd) & 0x7f800000u, 0x00800000u))};
}

// What FC reads
struct RowScaling {
  const RowFacts* facts;  // (rows)
  const RowPart* parts;   // (rows, ROW_PARTS), of which `tiles`, an even number
  int tiles;
};

// rstd / scale of a row
__device__ __forceinline__ float row_factor(const RowScaling& from, int row) {
  const float4* parts = reinterpret_cast<const float4*>(from.parts + static_cast<size_t>(row) * ROW_PARTS);
  float sum = 0.f, squares = 0.f;
#pragma unroll
  for (int i = 0; i < ROW_PARTS / 2; i++) {
    const float4 p = 2 * i < from.tiles ? __ldcg(parts + i) : make_float4(0.f, 0.f, 0.f, 0.f);
    sum += p.x + p.z;
    squares += p.y + p.w;
  }
  const float mean = sum * (1.f / D), scale = __ldcg(reinterpret_cast<const float2*>(from.facts) + row).y;
  const float rstd = rsqrtf(fmaxf(fmaf(-mean, mean, squares * (1.f / D)), 0.f) + LN_EPS);
  return squares < INFINITY ? rstd / scale : 0.f;  // the mean's square may be infinite, too
}
