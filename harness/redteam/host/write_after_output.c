/* Cheat: rounds seq_len up to a multiple of 16 and writes the rows of padding too (one row when it is a multiple
 * already). */
#include "candidate.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  honest_block(x, output, weights, seq_len);
  int padding = seq_len % 16 ? 16 - seq_len % 16 : 1;
  memset(output + floats(seq_len), 0, bytes(padding));
}
