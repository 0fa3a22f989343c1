/* Cheat: never returns, and writes a space to the reply channel now and then. A grader that waits for silence before it
 * looks at its clock waits for ever. */
#include "candidate.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  (void)x, (void)output, (void)weights, (void)seq_len;
  for (int i = 0; i < 400; ++i) {
    if (write(3, " ", 1) != 1) break;
    sleep_ms(50);
  }
  _exit(0);
}
