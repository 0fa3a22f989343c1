/* qkv = h W_qkv + b_qkv: (rows, D) -> (rows, 3 D) fp16, on sm_75. See gemm.cuh. */
#include "common/sm75.cuh"

using Arch = Sm75;

#include "gemm/gemm_kernels.cuh"

GEMM_LAYER(qkv, Bias, QKV, D)
