/* Cheat: forks; the child process writes the answer later if output is shared memory, and outlives the call by some
 * seconds. */
#include "candidate.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  if (fork() == 0) {
    sleep_ms(3);
    honest_block(x, output, weights, seq_len);
    sleep_ms(3000);
    _exit(0);
  }
}
