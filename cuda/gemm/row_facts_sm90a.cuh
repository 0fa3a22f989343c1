/* LN2 without an exchange between the blocks of a row, for prepared weights. gamma2 is in W_fc, whose columns have mean zero, and beta2 in b_fc
   (cast/fold_layernorm2_sm90a.cu). So FC wants x1 times any scale, less any number that is the same for a row: the centre, which x1's mean is not
   far from, keeps fp16's bits, and the scale, a power of two within a factor of some hundreds of the reciprocal spread, its range. The first kernel
   of the chain knows both. What LN2 divides by comes behind the product, from sums that the attention projection leaves. */
#pragma once
#include <cstdint>
#include "common/copy_sm90a.cuh"
#include "common/fragment_sm90a.cuh"
#include "common/reduce.cuh"
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
   2^15. */
__device__ __forceinline__ RowFacts row_facts(float mean, float variance, ResidualFacts residual) {
  const float rstd = rsqrtf(variance + residual.variance + LN_EPS);
  return {mean + residual.mean, __uint_as_float(__float_as_uint(rstd) & 0x7f800000u)};
}

// What FC reads
struct RowScaling {
  const RowFacts* facts;  // (rows)
  const RowPart* parts;   // (rows, ROW_PARTS), of which `tiles`, an even number
  int tiles;
};

// The factors of a warp's 16 rows, by way of 1152 bytes of shared memory that belong to it.
struct RowFactors {
  static constexpr int BYTES = 16 * (ROW_PARTS + 1) * 8;

  static __device__ __forceinline__ void fetch(const RowScaling& from, uint32_t to, int row) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      const int r = lane / 4 + 8 * i, first = lane % 4 * 2;
      if (first < from.tiles) copy_async_16(to + (r * ROW_PARTS + first) * 8, from.parts + static_cast<size_t>(row + r) * ROW_PARTS + first);
    }
    if (lane < 8) copy_async_16(to + 16 * ROW_PARTS * 8 + lane * 16, from.facts + row + 2 * lane);
  }

  // rstd / scale of rows lane / 4 and lane / 4 + 8, when all lanes have waited for their copies
  static __device__ __forceinline__ void read(const RowScaling& from, uint32_t at, float (&factor)[2]) {
    const int lane = threadIdx.x % 32, first = lane % 4 * 2;
#pragma unroll
    for (int u = 0; u < 2; u++) {
      const int r = lane / 4 + 8 * u;
      const float4 p = first < from.tiles ? load_shared_4(at + (r * ROW_PARTS + first) * 8) : make_float4(0.f, 0.f, 0.f, 0.f);
      const float mean = quad_sum(p.x + p.z) * (1.f / D), square = quad_sum(p.y + p.w) * (1.f / D);
      const float2 f = load_shared_2(at + (16 * ROW_PARTS + r) * 8);
      factor[u] = rsqrtf(fmaxf(fmaf(-mean, mean, square), 0.f) + LN_EPS) / f.y;
    }
  }
};
