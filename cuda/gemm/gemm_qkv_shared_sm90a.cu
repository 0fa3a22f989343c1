/* qkv(rows, 2304) fp16 = h(rows, 768) W_qkv + b_qkv for 65 to 128 and for 129 to 256 rows, W_qkv as the caller stored
   it. grid: 48 clusters of two blocks, and those that cast what `cast` says. A block draws half of its tile's weights,
   74 KB, and sends them on as 37 KB of fp16; of A it draws 98 KB for each 64 rows. */
#include "cast/cast_sm90a.cuh"
#include "dims.h"
#include "gemm/gemm_shared_sm90a.cuh"

#define GEMM_QKV_SHARED(BM, BN)                                                                                    \
  extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(SharedShape<BM, BN, QKV>::THREADS, 1)     \
      gemm_qkv_shared_##BM##x##BN(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap out,  \
                                  const DirectHalfArgs args, const CastArgs cast) {                                \
    using Shape = SharedShape<BM, BN, QKV>;                                                                        \
    using Epilogue = SharedHalfEpilogue<Shape, false>;                                                             \
    constexpr int WORKING = Shape::BLOCKS * Shape::N_TILES,                                                        \
                  CAST_STAGES = cast_stages(SharedMemory<Shape, Epilogue>::TOTAL);                                 \
    if (blockIdx.x >= WORKING) {                                                                                   \
      pdl_launch();                                                                                                \
      cast_role<Shape::THREADS, CAST_STAGES, 128, true>(cast, shared_base(), blockIdx.x - WORKING,                 \
                                                        gridDim.x - WORKING);                                      \
      return;                                                                                                      \
    }                                                                                                              \
    gemm_shared<Shape>(&a, args.weights, Epilogue(&out, args.bias + blockIdx.x / Shape::BLOCKS * BN), args.alarms, \
                       MATRIX_QKV);                                                                                \
  }

GEMM_QKV_SHARED(64, 48)
GEMM_QKV_SHARED(128, 48)
