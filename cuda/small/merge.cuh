/* Of sequences of one token attention is V, so that x1 = x + LN1(x) W_v W_o + (b_v W_o + b_o), W_o being the attention
   projection's weights: prepared, the product of the two matrices is one matrix, and an exchange and a product are
   saved. It is multiplied in fp32 and kept in fp16 with a power of two for each column, so that it holds whatever its
   size; what becomes of it is added to x1 in fp32. */
#pragma once

#include <cstdint>

#include "common/reduce.cuh"
#include "dims.h"
#include "small/layout.cuh"
#include "small/vectors.cuh"

namespace small {

/* The merged columns of one tile of 8 by a block of 384 threads, two rows each, from the caller's weights, aligned to 4
   bytes. Each block begins with another chunk, as all would ask for the same lines. Limiter: multiply-adds and shared
   memory alike (an SM's: 20 us), and what is staged. */
class Merge {
 public:
  static constexpr int THREADS = 384, COLUMNS = 8, BLOCKS = D / COLUMNS;

 private:
  static constexpr int ROWS = D / THREADS, CHUNK = 16, PITCH = CHUNK + 1, EACH = D * CHUNK / THREADS;

  // A chunk of columns of W_v, all of its rows, and of rows of W_o, each in front of the next one
  float values[2][D * PITCH];
  alignas(16) float projection[2][CHUNK][COLUMNS];
  float biases[D];  // b_v
  float largest[THREADS / 32][COLUMNS];

  // What this thread stages of a chunk
  struct Part {
    float values[EACH], projection;

    __device__ __forceinline__ void load(const float* weights, int chunk, int column) {
      const int i = threadIdx.x;
      const float* const from = weights + W_QKV + i / CHUNK * QKV + 2 * D + chunk * CHUNK + i % CHUNK;
#pragma unroll
      for (int e = 0; e < EACH; ++e) values[e] = __ldcg(from + e * (THREADS / CHUNK) * QKV);
      if (i < CHUNK * COLUMNS)
        projection = weights[W_ATTN + (chunk * CHUNK + i / COLUMNS) * D + column + i % COLUMNS];
    }
    __device__ __forceinline__ void store(Merge& to, int chunk) const {
      const int i = threadIdx.x;
#pragma unroll
      for (int e = 0; e < EACH; ++e)
        to.values[chunk % 2][(i / CHUNK + e * (THREADS / CHUNK)) * PITCH + i % CHUNK] = values[e];
      if (i < CHUNK * COLUMNS) to.projection[chunk % 2][i / COLUMNS][i % COLUMNS] = projection;
    }
  };

 public:
  __device__ __forceinline__ void run(const float* weights, __half* matrix, float* vectors) {
    const int column = blockIdx.x * COLUMNS, warp = threadIdx.x / 32;
    float sums[ROWS][COLUMNS] = {}, bias = 0;
    for (int i = threadIdx.x; i < D; i += THREADS) biases[i] = weights[B_QKV + 2 * D + i];
    constexpr int CHUNKS = D / CHUNK;
    static_assert(CHUNKS % 2 == 0);
    int chunk = blockIdx.x % CHUNKS;
    Part part;
    part.load(weights, chunk, column);
    for (int i = 0; i < CHUNKS; ++i) {
      part.store(*this, chunk);
      __syncthreads();
      const int next = chunk + 1 < CHUNKS ? chunk + 1 : 0;
      if (i + 1 < CHUNKS) part.load(weights, next, column);
      const float* const left = values[chunk % 2];
#pragma unroll 4
      for (int k = 0; k < CHUNK; ++k) {
        const float* const right = projection[chunk % 2][k];
        const float4 low = quad(right), high = quad(right + 4);
        const float of[COLUMNS] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
          for (int c = 0; c < COLUMNS; ++c)
            sums[r][c] = fmaf(left[(threadIdx.x + THREADS * r) * PITCH + k], of[c], sums[r][c]);
        if (threadIdx.x < COLUMNS) bias = fmaf(biases[chunk * CHUNK + k], right[threadIdx.x], bias);
      }
      chunk = next;
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      float most = 0;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) most = fmaxf(most, fabsf(sums[r][c]));
      most = __uint_as_float(warp_max(__float_as_uint(most)));
      if (threadIdx.x % 32 == 0) largest[warp][c] = most;
    }
    __syncthreads();
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      float most = 0;
      for (int w = 0; w < THREADS / 32; ++w) most = fmaxf(most, largest[w][c]);
      // The largest is between 1 and 2 of it; as fp32 has it to spare, neither it nor its inverse is subnormal
      const int exponent = min(max(static_cast<int>(__float_as_uint(most) >> 23), 2), 252);
      const float scale = __uint_as_float(exponent << 23), inverse = __uint_as_float((254 - exponent) << 23);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const int k = threadIdx.x + THREADS * r;  // as pack_matrix() has it for groups of 4
        matrix[((blockIdx.x * (D / 16) + k / 16) * 32 + 4 * c + k % 16 / 4) * 4 + k % 4] =
            __float2half_rn(sums[r][c] * inverse);
      }
      if (threadIdx.x == c) {
        vectors[2 * column + c] = bias + weights[B_ATTN + column + c];
        vectors[2 * column + COLUMNS + c] = scale;
      }
    }
  }
};

}  // namespace small
