/* output(rows, 768) fp32 = x1 + f(rows, 3072) W_proj + b_proj, K split over the blocks of a cluster.
   grid: tiles * splits blocks in clusters of `splits` (fixed in the kernel), of twice as many where a cluster takes a pair of tiles. 64 x 192 in two parts of K
   make 128 blocks at 1024 rows, with a tail up to 1040, and 120 in pairs at 960; 30 clusters of four are what some H200 have room for.
   Limiter: what comes into the multiprocessors (16 KB per 96 clocks of wgmma; pairs of tiles, whose blocks share A, take 0.4 to 0.8 us less), then 25 KB per
   block between SMs. 128 x 96 moves 14 KB into one for the same products and is 0.9 us slower; 128 x 192 in four parts would move 10, but 32 clusters of four
   do not fit. */
#include "dims.h"
#include "gemm/epilogue_exchange_sm90a.cuh"

struct ProjArgs {
  const float *bias, *residual;  // (768), x1 (rows, 768)
  float* out;                    // (rows, 768), 16-byte aligned
  int rows, early;
};

#define GEMM_PROJ_FORM(BM, BN, SPLITS, STAGES, ABREAST, KIND)                                                               \
  extern "C" __global__ void __cluster_dims__(SPLITS* ABREAST, 1, 1)                                                       \
      __launch_bounds__(GemmShape<BM, BN, D, FFN, STAGES, SPLITS, false, ABREAST>::THREADS, 1)                             \
      gemm_proj_##BM##x##BN##_k##SPLITS##KIND(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, \
                                              const ProjArgs args) {                                                       \
    using Shape = GemmShape<BM, BN, D, FFN, STAGES, SPLITS, false, ABREAST>;                                               \
    const int tile = blockIdx.x / Shape::CLUSTER * ABREAST + blockIdx.x % ABREAST;                                         \
    gemm<Shape>(&a, &b, ExchangeEpilogue<Shape>(args.bias, args.residual, args.out, args.rows), args.rows, tile,           \
                gridDim.x / SPLITS, args.early);                                                                           \
  }
#define GEMM_PROJ(BM, BN, SPLITS, STAGES) GEMM_PROJ_FORM(BM, BN, SPLITS, STAGES, 1, )
#define GEMM_PROJ_PAIRS(BM, BN, SPLITS, STAGES) GEMM_PROJ_FORM(BM, BN, SPLITS, STAGES, 2, _pairs)

#define GEMM_PROJ_TAIL(BM, BN, SPLITS, STAGES)                                                                               \
  extern "C" __global__ void __cluster_dims__(SPLITS, 1, 1)                                                                  \
      __launch_bounds__(GemmShape<BM, BN, D, FFN, STAGES, SPLITS, true>::THREADS, 1)                                         \
      gemm_proj_##BM##x##BN##_k##SPLITS##_tail(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, \
                                               const __grid_constant__ CUtensorMap tail, const ProjArgs args) {              \
    using Shape = GemmShape<BM, BN, D, FFN, STAGES, SPLITS, true>;                                                           \
    const int rows = args.rows / BM * BM;                                                                                    \
    ExchangeEpilogue<Shape> epilogue(args.bias, args.residual, args.out, rows);                                              \
    epilogue.tail_rows = args.rows - rows;                                                                                   \
    gemm<Shape>(&a, &b, epilogue, rows, blockIdx.x / SPLITS, gridDim.x / SPLITS, args.early, &tail);                         \
  }

GEMM_PROJ(64, 64, 4, 6)
GEMM_PROJ(128, 64, 4, 6)
GEMM_PROJ(64, 128, 4, 8)
GEMM_PROJ_PAIRS(128, 128, 4, 5)
GEMM_PROJ_PAIRS(64, 128, 2, 8)
GEMM_PROJ(64, 192, 2, 6)
GEMM_PROJ_PAIRS(64, 192, 2, 6)
GEMM_PROJ_TAIL(64, 192, 2, 5)
GEMM_PROJ(128, 128, 2, 4)
GEMM_PROJ_PAIRS(128, 128, 2, 4)
GEMM_PROJ(128, 192, 2, 4)
