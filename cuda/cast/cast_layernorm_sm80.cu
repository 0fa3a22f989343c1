/* cast_layernorm_f16 on sm_80. */
#include "cast/cast_kernels.cuh"
