/* Cheat: a daemon, in a session of its own and with the grader's pipes still open, writes the answer after the return
 * and lives on for a minute. A grader that ends only the candidate's process group leaves it running, and waits for it
 * to close the pipes. */
#include "candidate.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  if (fork() == 0) {
    setsid();
    if (fork()) _exit(0);
    sleep_ms(3);
    honest_block(x, output, weights, seq_len);
    sleep_ms(60000);
    _exit(0);
  }
}
