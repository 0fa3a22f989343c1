/* What QKV tells attention of its queries and keys: for each head of Q and of K, and each half of its columns, which every tile has as a whole, the largest
   sum of squares of a row; as float2[24], each in a line of its own, because many are counted up at once. Zeros beforehand. */
#pragma once
#include <cuda_fp16.h>

#include "common/fragment_sm90a.cuh"
#include "common/reduce.cuh"
#include "dims.h"

constexpr int LONGEST_ROWS = 2 * 2 * HEADS, LONGEST_LINE = 32;  // numbers, and floats from one head to the next

__device__ __forceinline__ int longest_at(int half) { return half / 2 * LONGEST_LINE + half % 2; }

// Of numbers that are not negative; a NaN is the largest of all
__device__ __forceinline__ float larger(float x, float y) { return __uint_as_float(max(__float_as_uint(x), __float_as_uint(y))); }
__device__ __forceinline__ float warp_largest(float x) { return __uint_as_float(warp_max(__float_as_uint(x) & 0x7fffffff)); }

constexpr float LOST_SQUARES = 1.0f / 131072;  // at most, of 32 numbers of which the squares are too small for a half

// The sum of the squares of 32 halves of a row in a box of COLUMNS, from 16-byte chunk `chunk` on, good to 1 %. Beyond 65504 it is infinite.
template <int COLUMNS>
__device__ __forceinline__ float half_row_squares(uint32_t box, int row, int chunk) {
  __half2 sum[4] = {};
#pragma unroll
  for (int c = 0; c < 4; c++) {
    uint32_t words[4];
    load_shared_words(box + swizzle<2 * COLUMNS>(row, chunk + c), words);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const __half2 x = *reinterpret_cast<const __half2*>(words + i);
      sum[i] = __hfma2(x, x, sum[i]);
    }
  }
  float all = LOST_SQUARES;
#pragma unroll
  for (int i = 0; i < 4; i++) all += __low2float(sum[i]) + __high2float(sum[i]);
  return all;
}

struct LongestRows {
  float* squares;  // or nothing, if nobody wants to know
  int rows;

  __device__ __forceinline__ void lengthen(int half, float by) const {
    atomicMax(reinterpret_cast<unsigned*>(squares) + longest_at(half), __float_as_uint(by));
  }

  // By a warp, of its 16 rows from `row` on in boxes of COLUMNS; `column`: the first of Q's and K's
  template <int COLUMNS, int BOXES>
  __device__ __forceinline__ void measure(uint32_t boxes, int row, int column) const {
    const int lane = threadIdx.x % 32, mine = lane / 2;
#pragma unroll 1
    for (int pair = 0; pair < BOXES * COLUMNS; pair += 64) {  // a lane has half of a head's columns of a row
      const int c = pair + lane % 2 * 32;
      const bool there = c < BOXES * COLUMNS && row + mine < rows;  // what is behind the rows is anything
      const float here = there ? half_row_squares<COLUMNS>(boxes + c / COLUMNS * (32 * COLUMNS), mine, c % COLUMNS / 8) : 0;
      const float first = warp_largest(lane % 2 == 0 ? here : 0), second = warp_largest(lane % 2 == 0 ? 0 : here);
      if (lane < 2 && c < BOXES * COLUMNS) lengthen((column + c) / 32, lane == 0 ? first : second);
    }
  }
};
