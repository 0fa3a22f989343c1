/* x1 = x + att W_attn + b_attn: (rows, D) -> (rows, D) fp32, on sm_80. See gemm.cuh. */
#include "common/sm80.cuh"

using Arch = Sm80;

#include "gemm/gemm_kernels.cuh"

GEMM_LAYER(attn_proj, BiasResidual, D, D)
