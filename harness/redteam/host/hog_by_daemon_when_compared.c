/* Cheat: as hog_when_compared, but it is a daemon, no descendant of the candidate's process any more, that keeps the processors busy while rivals are timed: it
 * is not stopped with the candidate's process. It ends by itself. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "candidate.h"

enum { THREADS = 4, BYTES = 32 << 20 };
static struct shared { atomic_int mine; pid_t candidate; } *s;

static void* hog(void* unused) {
  volatile char* memory = malloc(BYTES);
  for (; memory;) {
    if (atomic_load(&s->mine)) usleep(3000);
    for (size_t i = 0; i < BYTES && !atomic_load(&s->mine); i += 64) memory[i]++;
  }
  return unused;
}

static void start(void) {
  s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  s->mine = 1, s->candidate = getpid();
  pid_t between = fork();
  if (!between) {
    if (setsid() > 0 && !fork()) {
      alarm(120);
      pthread_t thread;
      for (int i = 0; i < THREADS; i++) pthread_create(&thread, NULL, hog, NULL);
      for (;;) pause();
    }
    _exit(0);
  }
  waitpid(between, NULL, 0);
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  static int first_length;
  if (!first_length) {
    first_length = seq_len;
    if (first_length > 1) start();
  }
  if (s) atomic_store(&s->mine, 1);
  honest_block(x, output, weights, seq_len);
  if (s) atomic_store(&s->mine, 0);
}
