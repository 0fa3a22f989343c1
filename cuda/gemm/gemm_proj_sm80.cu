/* output = x1 + f W_proj + b_proj: (rows, FFN) -> (rows, D) fp32, on sm_80. See gemm.cuh. */
#include "common/sm80.cuh"

using Arch = Sm80;

#include "gemm/gemm_kernels.cuh"

GEMM_LAYER(proj, BiasResidual, D, FFN)
