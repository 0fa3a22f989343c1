/* A warp writes its fp16 result, spread over mma accumulators, as whole 16-byte words: through its own piece of shared
   memory, because a fragment holds only 4 contiguous bytes and half-written sectors are slow in L2. */
#pragma once

#include "common/pack.cuh"
#include "common/tile.cuh"

// ROW_TILES x COLUMN_TILES accumulators of 16 x 8 -> rows [0, row_limit) of out, whose rows are `pitch` apart.
// `scratch` belongs to this warp alone: Tile<16 ROW_TILES, 8 COLUMN_TILES>::SIZE halves.
template <int ROW_TILES, int COLUMN_TILES>
__device__ void store_warp_tile(__half* out, size_t pitch, int row_limit, __half* scratch, int lane,
                                const float (&acc)[ROW_TILES][COLUMN_TILES][4]) {
  using T = Tile<16 * ROW_TILES, 8 * COLUMN_TILES>;
#pragma unroll
  for (int i = 0; i < ROW_TILES; ++i)
#pragma unroll
    for (int j = 0; j < COLUMN_TILES; ++j) {
      __half* at = scratch + (16 * i + lane / 4) * T::PITCH + 8 * j + lane % 4 * 2;
      *reinterpret_cast<unsigned*>(at) = pack_half2(acc[i][j][0], acc[i][j][1]);
      *reinterpret_cast<unsigned*>(at + 8 * T::PITCH) = pack_half2(acc[i][j][2], acc[i][j][3]);
    }
  __syncwarp();
  using C = Chunks<T, 32>;
  scratch += C::row(lane) * T::PITCH + C::column(lane);
  out += C::row(lane) * pitch + C::column(lane);
  row_limit -= C::row(lane);
  C::each(lane, [&](int, int row, int column) {
    if (row < row_limit)
      *reinterpret_cast<uint4*>(out + row * pitch + column) =
          *reinterpret_cast<const uint4*>(scratch + row * T::PITCH + column);
  });
}
