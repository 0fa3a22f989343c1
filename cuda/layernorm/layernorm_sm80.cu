/* layernorm_f16 on sm_80. */
#include "layernorm/layernorm_kernels.cuh"
