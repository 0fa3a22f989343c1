/* qkv(rows, 2304) fp16 = h(rows, 768) W_qkv + b_qkv for up to 64 rows, W_qkv as the caller stored it.
   grid: 2304 / BN. */
#include "dims.h"
#include "gemm/gemm_direct_sm90a.cuh"

#define GEMM_QKV_DIRECT(BM, BN, STAGES)                                                                           \
  extern "C" __global__ void __launch_bounds__(DirectShape<BM, BN, QKV, D, STAGES>::THREADS,                      \
                                               DirectShape<BM, BN, QKV, D, STAGES>::PER_SM)                       \
      gemm_qkv_direct_##BM##x##BN(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap out, \
                                  const DirectHalfArgs args) {                                                    \
    using Shape = DirectShape<BM, BN, QKV, D, STAGES>;                                                            \
    gemm_direct<Shape>(&a, args.weights, TileHalfEpilogue<Shape, false>(&out, args.bias + blockIdx.x * BN),       \
                       blockIdx.x, args.alarms, MATRIX_QKV);                                                      \
  }

GEMM_QKV_DIRECT(64, 32, 4)
