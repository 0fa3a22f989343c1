/* output(rows, 768) fp32 = x1 + f(rows, 3072) W_proj + b_proj.
   Up to 256 rows: K is split over the four blocks of a cluster; grid: tiles * 4 blocks. An H200 has room for 30 such clusters.
   Beyond: swapped tiles, up to 120 blocks in clusters of eight, fifteen of which an H200 has room for. Up to 1600 rows as many rows as make ten tiles or
   fewer: of 128 columns with half of K in each of two blocks at 321 to 1120 rows, else of 64 with all of K. Beyond 1600 rows 128 columns, all of K, twenty
   tiles, and beyond 4160 rows more than one wave. Only blocks that halve K wait for each other.
   Limiter: beyond 1120 rows what comes into the multiprocessors: a block of 64 columns draws 1032 KB at 104 rows, with half of K 712. Up to 1120 rows it is
   wgmma, and behind it exchange, residual and stores, 1.3 to 1.5 us at 1024 rows (H200). The exchange grows with the rows of a tile: whole calls of 1180 rows
   take as long in either form, 1440 rows 0.7 us longer with half of K. */
#include "dims.h"
#include "gemm/epilogue_exchange_sm90a.cuh"
#include "gemm/epilogue_swapped_sm90a.cuh"

struct ProjArgs {
  const float *bias, *residual;  // (768), x1 (rows, 768)
  float* out;                    // (rows, 768), 16-byte aligned
  int rows, early;
};

#define GEMM_PROJ(BM, BN, SPLITS, STAGES)                                                                                                           \
  extern "C" __global__ void __cluster_dims__(SPLITS, 1, 1) __launch_bounds__(GemmShape<BM, BN, D, FFN, STAGES, SPLITS>::THREADS, 1)                \
      gemm_proj_##BM##x##BN##_k##SPLITS(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const ProjArgs args) {        \
    using Shape = GemmShape<BM, BN, D, FFN, STAGES, SPLITS>;                                                                                        \
    gemm<Shape>(&a, &b, ExchangeEpilogue<Shape>(args.bias, args.residual, args.out, args.rows), args.rows, blockIdx.x / SPLITS, gridDim.x / SPLITS, \
                args.early);                                                                                                                        \
  }

GEMM_PROJ(64, 64, 4, 6)
GEMM_PROJ(128, 64, 4, 6)
GEMM_PROJ(64, 128, 4, 8)

struct ProjSwappedArgs {
  const float* bias;  // (768)
  int rows, early;
};

// A cluster has tiles of 256 columns, as many below each other as make eight blocks. Blocks of rows that there are not have nothing to do.
#define GEMM_PROJ_SWAPPED(BM, BN, SPLITS, STAGES)                                                                                         \
  extern "C" __global__ void __cluster_dims__(8, 1, 1)                                                                                    \
      __launch_bounds__(GemmShape<BM, BN, D, FFN, STAGES, SPLITS, 256 / BN, BN / SPLITS / 32, true>::THREADS, 1)                          \
      gemm_proj_##BM##x##BN##_k##SPLITS##_swapped(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,           \
                                                  const __grid_constant__ CUtensorMap x1, const __grid_constant__ CUtensorMap out,        \
                                                  const ProjSwappedArgs args) {                                                           \
    using Shape = GemmShape<BM, BN, D, FFN, STAGES, SPLITS, 256 / BN, BN / SPLITS / 32, true>;                                            \
    constexpr int ABREAST = Shape::ABREAST, ACROSS = Shape::N_TILES / ABREAST;                                                            \
    const int cluster = blockIdx.x / 8, rank = blockIdx.x % (8 / SPLITS), down = cluster / ACROSS * Shape::BELOW + rank / ABREAST;        \
    const int tile = down * Shape::N_TILES + cluster % ACROSS * ABREAST + rank % ABREAST;                                                 \
    if (down * BM < args.rows) gemm<Shape>(&a, &b, SwappedEpilogue<Shape>(&x1, &out, args.bias), args.rows, tile, gridDim.x, args.early); \
  }

GEMM_PROJ_SWAPPED(32, 64, 1, 9)
GEMM_PROJ_SWAPPED(48, 128, 2, 9)
GEMM_PROJ_SWAPPED(56, 128, 2, 9)
GEMM_PROJ_SWAPPED(64, 128, 2, 8)
GEMM_PROJ_SWAPPED(72, 128, 2, 8)
GEMM_PROJ_SWAPPED(80, 128, 2, 7)
GEMM_PROJ_SWAPPED(88, 128, 2, 7)
GEMM_PROJ_SWAPPED(96, 128, 2, 7)
GEMM_PROJ_SWAPPED(104, 128, 2, 6)
GEMM_PROJ_SWAPPED(112, 128, 2, 6)
GEMM_PROJ_SWAPPED(120, 64, 1, 9)
GEMM_PROJ_SWAPPED(136, 64, 1, 8)
GEMM_PROJ_SWAPPED(144, 64, 1, 8)
GEMM_PROJ_SWAPPED(152, 64, 1, 8)
GEMM_PROJ_SWAPPED(160, 64, 1, 8)
GEMM_PROJ_SWAPPED(88, 128, 1, 8)
GEMM_PROJ_SWAPPED(96, 128, 1, 8)
GEMM_PROJ_SWAPPED(104, 128, 1, 7)
GEMM_PROJ_SWAPPED(112, 128, 1, 7)
GEMM_PROJ_SWAPPED(120, 128, 1, 7)
GEMM_PROJ_SWAPPED(128, 128, 1, 7)
GEMM_PROJ_SWAPPED(144, 128, 1, 6)
GEMM_PROJ_SWAPPED(160, 128, 1, 6)
GEMM_PROJ_SWAPPED(176, 128, 1, 5)
GEMM_PROJ_SWAPPED(192, 128, 1, 5)
GEMM_PROJ_SWAPPED(208, 128, 1, 5)
