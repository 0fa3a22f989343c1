/* The end of a GEMM block: sums in registers -> epilogue -> global memory. `residual` and `out` point to the block's
   tile, their rows N apart; `rows` are those left from the tile's first one. */
#pragma once

#include "common/store.cuh"
#include "gemm/gemm_tile.cuh"

template <class G>
using Sums = float[G::ROW_TILES][G::COLUMN_TILES][4];

__device__ inline void store_pair(float* out, float a, float b) { *reinterpret_cast<float2*>(out) = make_float2(a, b); }
__device__ inline void store_pair(__half* out, float a, float b) {
  *reinterpret_cast<unsigned*>(out) = pack_half2(a, b);
}

// One slice, fp16 result: through shared memory, so that whole 16-byte words are written.
template <class Epilogue, class G, int N>
__device__ void finish_half(Sums<G>& sums, __half* scratch, const float* bias, __half* out, int rows) {
#pragma unroll
  for (int j = 0; j < G::COLUMN_TILES; ++j) {
    const float2 b = *reinterpret_cast<const float2*>(bias + G::warp_column() + 8 * j + G::lane() % 4 * 2);
#pragma unroll
    for (int i = 0; i < G::ROW_TILES; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[i][j][e] = Epilogue::apply(sums[i][j][e], e % 2 ? b.y : b.x, 0.f);
  }
  store_warp_tile(out + static_cast<size_t>(G::warp_row()) * N + G::warp_column(), N, rows - G::warp_row(), scratch,
                  G::lane(), sums);
}

// One slice, fp32 result: a fragment's eight contiguous bytes times four lanes fill a sector, no detour needed.
template <class Epilogue, class G, int N>
__device__ void finish_float(Sums<G>& sums, const float* bias, const float* residual, float* out, int rows) {
  const int column = G::warp_column() + G::lane() % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2 * G::ROW_TILES; ++i) {
    const int row = G::warp_row() + 8 * i + G::lane() / 4;
    if (row >= rows) continue;
    const size_t at = static_cast<size_t>(row) * N + column;
    float2 r[G::COLUMN_TILES];
#pragma unroll
    for (int j = 0; j < G::COLUMN_TILES; ++j)
      r[j] = Epilogue::RESIDUAL ? *reinterpret_cast<const float2*>(residual + at + 8 * j) : float2{};
#pragma unroll
    for (int j = 0; j < G::COLUMN_TILES; ++j) {
      const float2 b = *reinterpret_cast<const float2*>(bias + column + 8 * j);
      const float* pair = &sums[i / 2][j][i % 2 * 2];
      store_pair(out + at + 8 * j, Epilogue::apply(pair[0], b.x, r[j].x), Epilogue::apply(pair[1], b.y, r[j].y));
    }
  }
}

// Several slices: every warp leaves its sums in shared memory ...
template <class G, int SUM_PITCH>
__device__ void leave_sums(const Sums<G>& sums, float* partial) {
  float* mine =
      partial + (G::slice() * G::BM + G::warp_row() + G::lane() / 4) * SUM_PITCH + G::warp_column() + G::lane() % 4 * 2;
#pragma unroll
  for (int i = 0; i < G::ROW_TILES; ++i)
#pragma unroll
    for (int j = 0; j < G::COLUMN_TILES; ++j) {
      float* at = mine + 16 * i * SUM_PITCH + 8 * j;
      store_pair(at, sums[i][j][0], sums[i][j][1]);
      store_pair(at + 8 * SUM_PITCH, sums[i][j][2], sums[i][j][3]);
    }
}

// ... then all threads add them, slice 0 first, and store.
template <class Epilogue, class G, int N, int SUM_PITCH>
__device__ void finish_slices(const Sums<G>& sums, float* partial, const float* bias, const float* residual,
                              typename Epilogue::Out* out, int rows) {
  leave_sums<G, SUM_PITCH>(sums, partial);
  __syncthreads();
#pragma unroll 2
  for (int pair = threadIdx.x; pair < G::BM * G::BN / 2; pair += G::THREADS) {
    const int row = pair / (G::BN / 2);
    const int column = pair % (G::BN / 2) * 2;
    if (row >= rows) break;
    const size_t at = static_cast<size_t>(row) * N + column;
    const float2 r = Epilogue::RESIDUAL ? *reinterpret_cast<const float2*>(residual + at) : float2{};
    float2 sum = {};
#pragma unroll
    for (int slice = 0; slice < G::WK; ++slice) {
      const float2 v = *reinterpret_cast<const float2*>(partial + (slice * G::BM + row) * SUM_PITCH + column);
      sum = make_float2(sum.x + v.x, sum.y + v.y);
    }
    store_pair(out + at, Epilogue::apply(sum.x, bias[column], r.x), Epilogue::apply(sum.y, bias[column + 1], r.y));
  }
}
