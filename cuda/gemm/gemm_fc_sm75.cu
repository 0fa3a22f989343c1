/* f = gelu(h W_fc + b_fc): (rows, D) -> (rows, FFN) fp16, on sm_75. See gemm.cuh. */
#include "common/sm75.cuh"

using Arch = Sm75;

#include "gemm/gemm_kernels.cuh"

GEMM_LAYER(fc, BiasGelu, FFN, D)
