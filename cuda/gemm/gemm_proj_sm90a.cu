/* output(rows, 768) fp32 = x1 + f(rows, 3072) W_proj + b_proj.
   Up to 256 rows: K is split over the four blocks of a cluster; grid: tiles * 4 blocks. An H200 has room for 30 such clusters.
   Beyond: swapped tiles with all of K, of 64 columns and as many rows as make ten of them or fewer, beyond 1600 rows of 128 columns and twenty: up to 120
   blocks in clusters of eight, fifteen of which an H200 has room for; beyond 4160 rows in more than one wave. No block waits for another.
   Limiter: what comes into the multiprocessors, 1032 KB a block of 64 x 104 with all of K; without it 1024 rows took 1.5 us less (H200). */
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

// A cluster has eight tiles, as many abreast as have 256 columns. Blocks of rows that there are not have nothing to do.
#define GEMM_PROJ_SWAPPED(BM, BN, STAGES)                                                                                                            \
  extern "C" __global__ void __cluster_dims__(8, 1, 1)                                                                                               \
      __launch_bounds__(GemmShape<BM, BN, D, FFN, STAGES, 1, 256 / BN, BN / 32, true>::THREADS, 1)                                                   \
      gemm_proj_##BM##x##BN##_swapped(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,                                  \
                                      const __grid_constant__ CUtensorMap x1, const __grid_constant__ CUtensorMap out, const ProjSwappedArgs args) { \
    using Shape = GemmShape<BM, BN, D, FFN, STAGES, 1, 256 / BN, BN / 32, true>;                                                                     \
    constexpr int ABREAST = Shape::ABREAST, ACROSS = Shape::N_TILES / ABREAST;                                                                       \
    const int cluster = blockIdx.x / 8, rank = blockIdx.x % 8, down = cluster / ACROSS * Shape::BELOW + rank / ABREAST;                              \
    const int tile = down * Shape::N_TILES + cluster % ACROSS * ABREAST + rank % ABREAST;                                                            \
    if (down * BM < args.rows) gemm<Shape>(&a, &b, SwappedEpilogue<Shape>(&x1, &out, args.bias), args.rows, tile, gridDim.x, args.early);            \
  }

GEMM_PROJ_SWAPPED(32, 64, 9)
GEMM_PROJ_SWAPPED(48, 64, 8)
GEMM_PROJ_SWAPPED(56, 64, 7)
GEMM_PROJ_SWAPPED(64, 64, 7)
GEMM_PROJ_SWAPPED(72, 64, 6)
GEMM_PROJ_SWAPPED(80, 64, 6)
GEMM_PROJ_SWAPPED(88, 64, 5)
GEMM_PROJ_SWAPPED(96, 64, 5)
GEMM_PROJ_SWAPPED(104, 64, 5)
GEMM_PROJ_SWAPPED(112, 64, 5)
GEMM_PROJ_SWAPPED(120, 64, 9)
GEMM_PROJ_SWAPPED(136, 64, 8)
GEMM_PROJ_SWAPPED(144, 64, 8)
GEMM_PROJ_SWAPPED(152, 64, 8)
GEMM_PROJ_SWAPPED(160, 64, 8)
GEMM_PROJ_SWAPPED(88, 128, 8)
GEMM_PROJ_SWAPPED(96, 128, 8)
GEMM_PROJ_SWAPPED(104, 128, 7)
GEMM_PROJ_SWAPPED(112, 128, 7)
GEMM_PROJ_SWAPPED(120, 128, 7)
GEMM_PROJ_SWAPPED(128, 128, 7)
GEMM_PROJ_SWAPPED(144, 128, 6)
GEMM_PROJ_SWAPPED(160, 128, 6)
GEMM_PROJ_SWAPPED(176, 128, 5)
GEMM_PROJ_SWAPPED(192, 128, 5)
GEMM_PROJ_SWAPPED(208, 128, 5)
