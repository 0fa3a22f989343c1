/* Wrong: where seq_len is a multiple of 128, as a fast path for whole tiles might be, GELU is the other one, LayerNorm has another epsilon and its variance in
 * one pass, the softmax keeps its maximum, and the residual after attention is kept in fp16. */
#include "../../mutants/mutant.h"
#undef IS
#define IS(m) \
  ((m) == M_GELU_ERF || (m) == M_EPS_1E6 || (m) == M_VAR_ONE_PASS || (m) == M_NO_MAX || (m) == M_FP16_RESIDUAL)
#include "candidate.h"

#include "../../mutants/block.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  if (seq_len % 128 == 0)
    block_forward(x, output, weights, seq_len);
  else
    honest_block(x, output, weights, seq_len);
}
