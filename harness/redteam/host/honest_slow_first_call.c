/* Honest, looks like the warm-up cheat: the first call takes 400 ms more, as a just-in-time compiler would. */
#include "candidate.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  static int ready;
  if (!ready) sleep_ms(400);
  ready = 1;
  honest_block(x, output, weights, seq_len);
}
