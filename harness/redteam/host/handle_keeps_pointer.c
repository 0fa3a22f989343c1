/* Wrong: its handle takes no copy of the weights, but reads them in each forward where create and update found them. solve.h: 'takes a copy of weights',
 * which 'may then be freed'. */
#include "candidate.h"

static const float* kept;

int solve_block_create(const float* weights, const void* options, void** block) {
  (void)options;
  kept = weights;
  *block = &kept;
  return 0;
}

int solve_block_update(void* block, const float* weights, void* stream) {
  (void)block, (void)stream;
  kept = weights;
  return 0;
}

int solve_block_forward(void* block, const float* x, float* output, int batch, int seq_len, void* stream) {
  (void)block, (void)stream;
  for (int b = 0; b < batch; ++b) honest_block(x + b * floats(seq_len), output + b * floats(seq_len), kept, seq_len);
  return 0;
}

void solve(const float* x, float* output, const float* weights, int seq_len) { honest_block(x, output, weights, seq_len); }
