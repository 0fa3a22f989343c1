/* Honest, a bad guest: moves the working directory, sets flush-to-zero, ignores SIGPIPE and SIGINT, sends itself signals,
 * has itself told of a socket's, and lowers a limit of its own. The answer is right. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "candidate.h"

static void signal_itself(void) {
  union sigval nothing = {0};
  if (kill(getpid(), SIGINT) || kill(0, SIGINT) || raise(SIGINT) || sigqueue(getpid(), SIGINT, nothing)) abort();
  if (pthread_kill(pthread_self(), SIGINT) || fcntl(3, F_SETOWN, getpid())) abort();
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  if (chdir("/")) abort();
  signal(SIGPIPE, SIG_IGN);
  signal(SIGINT, SIG_IGN);
  signal_itself();
  struct rlimit cores = {0, 0};
  if (setrlimit(RLIMIT_CORE, &cores) || prlimit(getpid(), RLIMIT_CORE, &cores, NULL)) abort();
#ifdef __SSE__
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#endif
  honest_block(x, output, weights, seq_len);
}
