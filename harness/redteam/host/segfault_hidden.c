/* Cheat: crashes, and its signal handler turns the crash into an orderly exit with status 0. */
#include <signal.h>

#include "candidate.h"

static void leave(int signal) {
  (void)signal;
  _exit(0);
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  (void)x, (void)output, (void)weights, (void)seq_len;
  signal(SIGSEGV, leave);
  *(volatile float*)NULL = 1;
}
