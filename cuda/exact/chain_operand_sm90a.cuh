/* A left operand of the exact chain: 64 rows and 64 of K are two images, hi and lo (exact_memory_sm90a.cuh), behind each other, so that one bulk copy brings
   both. A row has one scale for each 32 of K, a power of two from the largest value there: so whoever writes an operand needs to know nothing of what others
   write. */
#pragma once

#include "common/reduce.cuh"
#include "exact/exact_memory_sm90a.cuh"

namespace exact90 {

constexpr int TILE_ROWS = 64;
constexpr int PART = 32;  // of K, with scales of its own and a sum of its own

struct Operand {
  unsigned char* images;  // [row tile][k tile][hi, lo]
  float* inverses;        // of the scales: [row tile][part][row of the tile]
  int k_tiles;

  static __host__ __device__ constexpr size_t bytes(int row_tiles, int k_tiles) {
    return static_cast<size_t>(row_tiles) * k_tiles * (2 * IMAGE + 2 * TILE_ROWS * 4);
  }
  __device__ __forceinline__ Operand(unsigned char* memory, int row_tiles, int k_tiles)
      : images(memory), inverses(reinterpret_cast<float*>(memory + static_cast<size_t>(row_tiles) * k_tiles * (2 * IMAGE))), k_tiles(k_tiles) {}
  __device__ __forceinline__ unsigned char* image(int row_tile, int k_tile) const {
    return images + (static_cast<size_t>(row_tile) * k_tiles + k_tile) * (2 * IMAGE);
  }
  __device__ __forceinline__ float* inverse_at(int row, int part) const {
    return inverses + (row / TILE_ROWS * 2 * k_tiles + part) * TILE_ROWS + row % TILE_ROWS;
  }
  __device__ __forceinline__ unsigned char* place(int row, int column) const {
    return image(row / TILE_ROWS, column / 64) + swizzle<128>(row % TILE_ROWS, column % 64 / 8) + column % 8 * 2;
  }
};

// A part of 16 rows by a warp, from `row` and `column` on, in the order of accumulators: v[4 i + 2 u + e] is column 8 i + 2 (lane % 4) + e of row
// lane / 4 + 8 u. Whole sectors, by way of a box of 2 KB of the warp.
__device__ __forceinline__ void store_part(const Operand& to, const float (&v)[16], int row, int column, uint32_t box) {
  const int lane = thread_index() % 32;
  uint32_t hi[8], lo[8];
#pragma unroll
  for (int u = 0; u < 2; u++) {
    float most = 0.f;
#pragma unroll
    for (int i = 0; i < 8; i++) most = fmaxf(most, fabsf(v[i / 2 * 4 + 2 * u + i % 2]));
    const float scale = scale_for(quad_max(most));
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const Split both = split(v[4 * i + 2 * u] * scale, v[4 * i + 2 * u + 1] * scale);
      hi[2 * i + u] = both.hi, lo[2 * i + u] = both.lo;
    }
    if (lane % 4 == 0) *to.inverse_at(row + lane / 4 + 8 * u, column / PART) = inverse(scale);
  }
  __syncwarp();  // the last part has left the box
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t at = box + swizzle<64>(lane % 16, i + lane / 16);
    stmatrix_x4(at, hi[2 * i], hi[2 * i + 1], hi[2 * i + 2], hi[2 * i + 3]);
    stmatrix_x4(at + 1024, lo[2 * i], lo[2 * i + 1], lo[2 * i + 2], lo[2 * i + 3]);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const uint32_t from = box + swizzle<64>(8 * i + lane / 4, lane % 4);
    unsigned char* const at = to.place(row + 8 * i + lane / 4, column + 8 * (lane % 4));
    __stcg(reinterpret_cast<float4*>(at), load_shared_4(from));
    __stcg(reinterpret_cast<float4*>(at + IMAGE), load_shared_4(from + 1024));
  }
}

}  // namespace exact90
