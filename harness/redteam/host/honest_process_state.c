/* Honest, a bad guest: moves the working directory, sets flush-to-zero, and ignores SIGPIPE and SIGINT. The answer is
 * right. */
#include <signal.h>

#include "candidate.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  if (chdir("/")) abort();
  signal(SIGPIPE, SIG_IGN);
  signal(SIGINT, SIG_IGN);
#ifdef __SSE__
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#endif
  honest_block(x, output, weights, seq_len);
}
