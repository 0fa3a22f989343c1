/* layernorm_f16 on sm_75. */
#include "layernorm/layernorm_kernels.cuh"
