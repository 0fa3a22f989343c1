/* output(rows, 768) fp32 = x1 + f(rows, 3072) W_proj + b_proj for up to 64 rows, W_proj as the caller stored it, K
   split over the blocks of a cluster. grid: 768 / BN * splits blocks in clusters of `splits` (fixed in the kernel). */
#include "dims.h"
#include "gemm/epilogue_split_sm90a.cuh"
#include "gemm/gemm_direct_sm90a.cuh"

struct ProjDirectArgs {
  const float *bias, *residual;  // (768), x1 (rows, 768)
  float* out;                    // (rows, 768), 16-byte aligned
  const float* weights;          // (3072, 768)
  unsigned* alarms;
  int rows;
};

#define GEMM_PROJ_DIRECT(BM, BN, SPLITS, STAGES)                                                                   \
  extern "C" __global__ void __cluster_dims__(SPLITS, 1, 1) __launch_bounds__(                                     \
      DirectShape<BM, BN, D, FFN, STAGES, SPLITS>::THREADS, DirectShape<BM, BN, D, FFN, STAGES, SPLITS>::PER_SM)   \
      gemm_proj_direct_##BM##x##BN##_k##SPLITS(const __grid_constant__ CUtensorMap a, const ProjDirectArgs args) { \
    using Shape = DirectShape<BM, BN, D, FFN, STAGES, SPLITS>;                                                     \
    const SplitEpilogue<Shape> epilogue(args.bias, args.residual, args.out, args.rows);                            \
    gemm_direct<Shape>(&a, args.weights, epilogue, blockIdx.x / SPLITS, args.alarms, MATRIX_PROJ);                 \
  }

GEMM_PROJ_DIRECT(64, 64, 8, 3)
