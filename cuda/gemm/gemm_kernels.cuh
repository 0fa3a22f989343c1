/* The tiles of the portable GEMMs, and GEMM_LAYER, which defines the kernels gemm_<layer>_<tile> of one layer. Included
   by each gemm_<layer>_<arch>.cu, which names its architecture `Arch` first. Every tile fits the 99 KB of shared memory
   that a block of sm_86 may have. */
#pragma once

#include "dims.h"
#include "gemm/epilogue.cuh"
#include "gemm/gemm.cuh"

//                         BM   BN   BK WM WN WK stages
using Tile16x32 = GemmTile<16, 32, 256, 1, 1, 8, 3>;
using Tile32x64 = GemmTile<32, 64, 128, 1, 2, 4, 3>;
using Tile64x64 = GemmTile<64, 64, 64, 2, 2, 2, 4>;
using Tile64x96 = GemmTile<64, 96, 64, 2, 2, 1, 4>;
using Tile128x96 = GemmTile<128, 96, 64, 4, 2, 1, 3>;
using Tile128x192 = GemmTile<128, 192, 32, 2, 4, 1, 4>;

#define GEMM(LAYER, TILE, EPILOGUE, N, K, BLOCKS_PER_SM)                                                           \
  extern "C" __global__ void __launch_bounds__(Tile##TILE::THREADS, Arch::blocks_per_sm(BLOCKS_PER_SM))            \
      gemm_##LAYER##_##TILE(const __half* a, const __half* w, const float* bias, const float* residual, void* out, \
                            int rows) {                                                                            \
    gemm<Arch, EPILOGUE, Tile##TILE, N, K>(a, w, bias, residual, out, rows);                                       \
  }

#define GEMM_LAYER(LAYER, EPILOGUE, N, K) \
  GEMM(LAYER, 16x32, EPILOGUE, N, K, 2)   \
  GEMM(LAYER, 32x64, EPILOGUE, N, K, 2)   \
  GEMM(LAYER, 64x64, EPILOGUE, N, K, 2)   \
  GEMM(LAYER, 64x96, EPILOGUE, N, K, 2)   \
  GEMM(LAYER, 128x96, EPILOGUE, N, K, 2)  \
  GEMM(LAYER, 128x192, EPILOGUE, N, K, 1)
