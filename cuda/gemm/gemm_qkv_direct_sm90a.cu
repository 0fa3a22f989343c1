/* qkv(rows, 2304) fp16 = h(rows, 768) W_qkv + b_qkv, W_qkv as the caller stored it. grid: ceil(rows / BM) * 2304 / BN. */
#include "dims.h"
#include "gemm/gemm_direct_sm90a.cuh"

#define GEMM_QKV_DIRECT(BM, BN, STAGES)                                                                                                       \
  extern "C" __global__ void __launch_bounds__(DirectShape<BM, BN, QKV, D, STAGES>::THREADS, BM == 64 ? 2 : 1)                                \
      gemm_qkv_direct_##BM##x##BN(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap out, const DirectHalfArgs args) { \
    using Shape = DirectShape<BM, BN, QKV, D, STAGES>;                                                                                        \
    using Epilogue = TileHalfEpilogue<Shape, false>;                                                                                          \
    gemm_direct<Shape>(&a, args.weights, Epilogue(&out, args.bias + blockIdx.x % Shape::N_TILES * BN), blockIdx.x, args.alarms, MATRIX_QKV);  \
  }

GEMM_QKV_DIRECT(64, 32, 4)
GEMM_QKV_DIRECT(128, 32, 5)
