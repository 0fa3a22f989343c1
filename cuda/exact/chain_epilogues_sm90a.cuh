/* The ends of the exact chain's products. A thread has PAIRS pairs of neighbouring columns, `column` and every eighth one further, of `row` and of the row
   eight further; its warp all of 16 rows. */
#pragma once

#include "common/copy_sm90a.cuh"
#include "common/sync_sm90a.cuh"
#include "exact/chain_operand_sm90a.cuh"

namespace exact90 {

// to(rows, D) fp32 = sum + bias + residual(rows, D), which the chain may have written
template <int PAIRS>
struct ResidualEpilogue {
  const float *bias, *residual;
  float* to;
  int rows;
  float2 extra[2][PAIRS];  // of the residual

  __device__ __forceinline__ void prepare(int row, int column) {
    pdl_wait();
#pragma unroll
    for (int u = 0; u < 2; u++)
#pragma unroll
      for (int i = 0; i < PAIRS; i++) {
        const float* const from = residual + static_cast<size_t>(row + 8 * u) * D + column + 8 * i;
        if (row + 8 * u < rows) extra[u][i] = load_here_2(from);
      }
  }
  __device__ __forceinline__ void finish(const float (&sum)[4 * PAIRS], int row, int column, uint32_t at_bias, uint32_t) const {
#pragma unroll
    for (int u = 0; u < 2; u++) {
      if (row + 8 * u >= rows) continue;
      float* const at = to + static_cast<size_t>(row + 8 * u) * D + column;
#pragma unroll
      for (int i = 0; i < PAIRS; i++) {
        const float2 b = load_shared_2(at_bias + 32 * i);
        *reinterpret_cast<float2*>(at + 8 * i) = make_float2(sum[4 * i + 2 * u] + (extra[u][i].x + b.x), sum[4 * i + 2 * u + 1] + (extra[u][i].y + b.y));
      }
    }
  }
};

// to = sum + bias, or gelu of it, as a left operand. Rows past the end are zeros: as values of keys that nobody sees they must not spoil a sum.
template <int PAIRS, bool GELU>
struct OperandEpilogue {
  const float* bias;
  Operand to;
  int rows;

  __device__ __forceinline__ void prepare(int, int) const {}
  __device__ __forceinline__ void finish(const float (&sum)[4 * PAIRS], int row, int column, uint32_t at_bias, uint32_t box) const {
    static_assert(PAIRS % 4 == 0, "whole parts");
#pragma unroll
    for (int p = 0; p < PAIRS / 4; p++) {
      float v[16];
#pragma unroll
      for (int i = 0; i < 16; i += 2) {
        const float2 b = load_shared_2(at_bias + 32 * (4 * p + i / 4));
#pragma unroll
        for (int e = 0; e < 2; e++) {
          const float all = sum[16 * p + i + e] + (e ? b.y : b.x);
          v[i + e] = row + i / 2 % 2 * 8 < rows ? (GELU ? gelu_exact(all) : all) : 0.f;
        }
      }
      store_part(to, v, row - threadIdx.x % 32 / 4, column - threadIdx.x % 4 * 2 + PART * p, box);
    }
  }
};

}  // namespace exact90
