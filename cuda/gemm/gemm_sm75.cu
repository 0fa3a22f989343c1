/* The four linear layers on sm_75. See gemm.cuh. */
#include "common/sm75.cuh"

using Arch = Sm75;

#include "gemm/gemm_kernels.cuh"
