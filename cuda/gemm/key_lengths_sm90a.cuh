/* What QKV tells attention of its keys: for each group of KEY_ROWS rows and each half of a head's columns, which every tile has as a whole, the largest sum of
   squares of a row; as float2[groups / 32][12][32]. */
#pragma once
#include <cuda_fp16.h>

#include "dims.h"

constexpr int KEY_ROWS = 16;  // of a warp

__device__ __forceinline__ size_t key_lengths_at(int group, int head) { return (static_cast<size_t>(group / 32) * HEADS + head) * 32 + group % 32; }

// Of numbers that are not negative; a NaN is the largest of all
__device__ __forceinline__ float larger(float x, float y) { return __uint_as_float(max(__float_as_uint(x), __float_as_uint(y))); }
__device__ __forceinline__ float warp_largest(float x) { return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(x) & 0x7fffffff)); }

constexpr float LOST_SQUARES = 1.0f / 131072;  // at most, of 32 numbers of which the squares are too small for a half

// What a thread sees of a half of a head: its columns in rows lane / 4 and lane / 4 + 8. A sum beyond 65504 is infinite; others are good to 1 %.
struct KeySquares {
  __half2 rows[2] = {};

  // 16 columns: pairs of the one row and of the other in turn
  __device__ __forceinline__ void add(const uint32_t (&pairs)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const __half2 x = *reinterpret_cast<const __half2*>(pairs + i);
      rows[i % 2] = __hfma2(x, x, rows[i % 2]);
    }
  }
};

struct KeyLengths {
  float* lengths;
  int rows;

  // By a warp, of the rows from `row` on; `half`: of 24
  __device__ __forceinline__ void store(const KeySquares& squares, int row, int half) const {
    const __half2(&s)[2] = squares.rows;
    __half2 sums = __hadd2(__lows2half2(s[0], s[1]), __highs2half2(s[0], s[1]));
    sums = __hadd2(sums, __shfl_xor_sync(~0u, sums, 1));
    sums = __hadd2(sums, __shfl_xor_sync(~0u, sums, 2));
    const int mine = row + threadIdx.x % 32 / 4;  // what is behind the rows is anything
    const float longest = warp_largest(larger(mine < rows ? __low2float(sums) : 0.f, mine + 8 < rows ? __high2float(sums) : 0.f)) + LOST_SQUARES;
    if (threadIdx.x % 32 == 0) lengths[2 * key_lengths_at(row / KEY_ROWS, half / 2) + half % 2] = longest;
  }
};
