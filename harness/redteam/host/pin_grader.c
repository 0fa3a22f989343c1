/* Cheat: right, but lets the grader's process run on one processor only. Candidates that are started after it inherit that; its own process goes back to
 * all. As root it cannot, as it has fewer capabilities than the grader. */
#define _GNU_SOURCE
#include <sched.h>
#include "candidate.h"

__attribute__((constructor)) static void pin(void) {
  cpu_set_t one, all;
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  CPU_ZERO(&all);
  for (int i = 0; i < CPU_SETSIZE; ++i) CPU_SET(i, &all);
  sched_setaffinity(getppid(), sizeof one, &one);
  sched_setaffinity(0, sizeof all, &all);
}

void solve(const float* x, float* output, const float* weights, int seq_len) { honest_block(x, output, weights, seq_len); }
