/* x1 = x + att W_attn + b_attn: (rows, D) -> (rows, D) fp32, on sm_75. See gemm.cuh. */
#include "common/sm75.cuh"

using Arch = Sm75;

#include "gemm/gemm_kernels.cuh"

GEMM_LAYER(attn_proj, BiasResidual, D, D)
