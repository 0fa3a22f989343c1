/* qkv(rows, 2304) fp16 = h(rows, 768) W_qkv + b_qkv, W_qkv as the caller stored it; blocks past `gemm_blocks` cast the other weights for later kernels.
   grid: ceil(rows / BM) * 2304 / BN, and as many as there are idle multiprocessors. */
#include "cast/cast_sm90a.cuh"
#include "dims.h"
#include "gemm/gemm_direct_sm90a.cuh"

struct QkvDirectArgs {
  const float* bias;     // (2304)
  const float* weights;  // (768, 2304), aligned to 4 bytes
  CastArgs cast;         // its alarms are also the product's
  int gemm_blocks;
};

// Copies in flight in a block that casts. With the thirteen that there is room for, the product's own weights come later: 256 and 384 rows +0.3 us (H200)
constexpr int CAST_STAGES = 4;

#define GEMM_QKV_DIRECT(BM, BN, STAGES)                                                                                                            \
  extern "C" __global__ void __launch_bounds__(DirectShape<BM, BN, QKV, D, STAGES>::THREADS, BM == 64 ? 2 : 1)                                     \
      gemm_qkv_direct_##BM##x##BN(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap out, const QkvDirectArgs args) {      \
    using Shape = DirectShape<BM, BN, QKV, D, STAGES>;                                                                                             \
    using Epilogue = TileHalfEpilogue<Shape, false>;                                                                                               \
    if (blockIdx.x >= args.gemm_blocks) {                                                                                                          \
      pdl_launch();                                                                                                                                \
      cast_role<Shape::THREADS, CAST_STAGES, 128>(args.cast, shared_base(), blockIdx.x - args.gemm_blocks, gridDim.x - args.gemm_blocks);          \
      return;                                                                                                                                      \
    }                                                                                                                                              \
    gemm_direct<Shape>(&a, args.weights, Epilogue(&out, args.bias + blockIdx.x % Shape::N_TILES * BN), blockIdx.x, args.cast.alarms, MATRIX_QKV);  \
  }

GEMM_QKV_DIRECT(64, 32, 4)
GEMM_QKV_DIRECT(128, 32, 5)
GEMM_QKV_DIRECT(128, 64, 4)
