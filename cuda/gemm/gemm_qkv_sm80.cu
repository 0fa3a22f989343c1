/* qkv = h W_qkv + b_qkv: (rows, D) -> (rows, 3 D) fp16, on sm_80. See gemm.cuh. */
#include "common/sm80.cuh"

using Arch = Sm80;

#include "gemm/gemm_kernels.cuh"

GEMM_LAYER(qkv, Bias, QKV, D)
