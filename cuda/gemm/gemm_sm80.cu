/* The four linear layers on sm_80. See gemm.cuh. */
#include "common/sm80.cuh"

using Arch = Sm80;

#include "gemm/gemm_kernels.cuh"
