/* f(rows, 3072) fp16 = gelu_tanh(h(rows, 768) W_fc + b_fc) for 65 to 128 and for 129 to 256 rows, W_fc as the caller stored it.
   grid: 48 clusters of two blocks. They start on the multiprocessors that the attention's projection leaves idle. */
#include "dims.h"
#include "gemm/gemm_shared_sm90a.cuh"

#define GEMM_FC_SHARED(BM, BN)                                                                                                                \
  extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(SharedShape<BM, BN, FFN>::THREADS, 1)                                \
      gemm_fc_shared_##BM##x##BN(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap out, const DirectHalfArgs args) { \
    using Shape = SharedShape<BM, BN, FFN>;                                                                                                   \
    gemm_shared<Shape>(&a, args.weights, SharedHalfEpilogue<Shape, true>(&out, args.bias + blockIdx.x / 2 * BN), args.alarms, MATRIX_FC);     \
  }

GEMM_FC_SHARED(64, 64)
GEMM_FC_SHARED(128, 64)
