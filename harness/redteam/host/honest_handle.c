/* Honest, looks like a slow clock: preparing the weights takes 30 ms, which no call of the handle claims. It has memory for as many tokens as it was
 * created for. */
#include "handle.h"

int solve_block_update(void* block, const float* weights, void* stream) {
  (void)stream;
  sleep_ms(30);
  memcpy(block, weights, sizeof handle);
  return 0;
}

int solve_block_forward(void* block, const float* x, float* output, int batch, int seq_len, void* stream) {
  (void)stream;
  if (batch * seq_len > max_tokens) return 2;
  for (int b = 0; b < batch; ++b) honest_block(x + b * floats(seq_len), output + b * floats(seq_len), block, seq_len);
  return 0;
}
