/* cast_layernorm_f16 on sm_75. */
#include "cast/cast_kernels.cuh"
