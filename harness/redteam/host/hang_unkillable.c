/* Cheat: blocks every signal that can be blocked, answers the rest with exit status 0, and never returns. */
#include <signal.h>

#include "candidate.h"

static void leave(int signal) {
  (void)signal;
  _exit(0);
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  (void)x, (void)output, (void)weights, (void)seq_len;
  static const int deadly[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGALRM};
  for (size_t i = 0; i < sizeof deadly / sizeof *deadly; ++i) signal(deadly[i], leave);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
  for (;;) sleep(1);
}
