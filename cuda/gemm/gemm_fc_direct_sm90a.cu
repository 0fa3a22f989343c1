/* f(rows, 3072) fp16 = gelu_tanh(h(rows, 768) W_fc + b_fc) for up to 64 rows, W_fc as the caller stored it.
   grid: 3072 / BN. */
#include "dims.h"
#include "gemm/gemm_direct_sm90a.cuh"

#define GEMM_FC_DIRECT(BM, BN, STAGES)                                                                                 \
  extern "C" __global__ void __launch_bounds__(DirectShape<BM, BN, FFN, D, STAGES>::THREADS,                           \
                                               DirectShape<BM, BN, FFN, D, STAGES>::PER_SM)                            \
      gemm_fc_direct_##BM##x##BN(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap out,       \
                                 const DirectHalfArgs args) {                                                          \
    using Shape = DirectShape<BM, BN, FFN, D, STAGES>;                                                                 \
    gemm_direct<Shape>(&a, args.weights, TileHalfEpilogue<Shape, true>(&out, args.bias + blockIdx.x * BN), blockIdx.x, \
                       args.alarms, MATRIX_FC);                                                                        \
  }

GEMM_FC_DIRECT(64, 32, 4)
