/* Honest, looks like the warm-up cheat: the first call takes 400 ms more, as a just-in-time compiler would. */
#include "candidate.cuh"

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  static bool ready;
  if (!ready) usleep(400000);
  ready = true;
  honest_block(x, output, weights, seq_len);
}
