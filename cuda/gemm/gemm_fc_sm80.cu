/* f = gelu(h W_fc + b_fc): (rows, D) -> (rows, FFN) fp16, on sm_80. See gemm.cuh. */
#include "common/sm80.cuh"

using Arch = Sm80;

#include "gemm/gemm_kernels.cuh"

GEMM_LAYER(fc, BiasGelu, FFN, D)
