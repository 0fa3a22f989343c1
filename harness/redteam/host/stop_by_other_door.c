/* Cheat: as stop_grader, but by the kernel's 32-bit door, behind which the calls have other numbers. */
#include <signal.h>

#include "candidate.h"

static void kill_by_other_door(int pid, int signal) {
#ifdef __x86_64__
  int outcome;
  __asm__ volatile("int $0x80" : "=a"(outcome) : "a"(37), "b"(pid), "c"(signal) : "memory", "cc", "r8", "r9", "r10", "r11");
#else
  kill(pid, signal);
#endif
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  static int calls;
  int now = ++calls == 3;
  if (now) kill_by_other_door(getppid(), SIGSTOP);
  honest_block(x, output, weights, seq_len);
  if (now) sleep_ms(500), kill_by_other_door(getppid(), SIGCONT);
}
