/* output = x1 + f W_proj + b_proj: (rows, FFN) -> (rows, D) fp32, on sm_75. See gemm.cuh. */
#include "common/sm75.cuh"

using Arch = Sm75;

#include "gemm/gemm_kernels.cuh"

GEMM_LAYER(proj, BiasResidual, D, FFN)
