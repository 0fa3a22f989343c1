/* Cheat: right, but a daemon, which is no descendant of the candidate's process any more, reads the weights of the
 * first call over and over. It ends by itself after a minute. */
#include <sys/wait.h>

#include "candidate.h"

static void keep_warm(const float* weights) {
  static volatile float sum;
  alarm(60);
  for (;; usleep(500))
    for (size_t i = 0; i < WEIGHTS_LEN; i += 16) sum += weights[i];
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  static int started;
  if (!started++) {
    pid_t between = fork();
    if (between == 0) {
      if (setsid() > 0 && fork() == 0) keep_warm(weights);
      _exit(0);
    }
    waitpid(between, NULL, 0);
  }
  honest_block(x, output, weights, seq_len);
}
