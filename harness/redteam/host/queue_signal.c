/* Cheat: right, but ends the process that started this one on the third call, by a queued signal. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>

#include "candidate.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  static int calls;
  siginfo_t info = {.si_signo = SIGKILL, .si_code = SI_QUEUE};
  honest_block(x, output, weights, seq_len);
  if (++calls == 3) syscall(SYS_rt_tgsigqueueinfo, getppid(), getppid(), SIGKILL, &info);
}
