/* Honest, looks like a process that lost time: a worker does the work and leaves after 330 ms without any, while the
 * grader looks whether the process is at rest. The next call starts another. */
#include <time.h>

#include "candidate.h"

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  const float *x, *weights;
  float* output;
  int seq_len;
  enum { IDLE, REQUESTED, DONE } state;
  int running;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct timespec idle_until(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  long ns = now.tv_nsec + 330000000;
  return (struct timespec){now.tv_sec + ns / 1000000000, ns % 1000000000};
}

static void* work(void* unused) {
  pthread_mutex_lock(&pool.lock);
  for (int late = 0; !late || pool.state == REQUESTED;) {
    struct timespec until = idle_until();
    late = 0;
    while (pool.state != REQUESTED && !late) late = pthread_cond_timedwait(&pool.changed, &pool.lock, &until) != 0;
    if (pool.state != REQUESTED) continue;
    honest_block(pool.x, pool.output, pool.weights, pool.seq_len);
    pool.state = DONE;
    pthread_cond_broadcast(&pool.changed);
  }
  pool.running = 0;
  pthread_mutex_unlock(&pool.lock);
  return unused;
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  pthread_mutex_lock(&pool.lock);
  if (!pool.running) {
    pthread_t worker;
    if (pthread_create(&worker, NULL, work, NULL)) abort();
    pthread_detach(worker);
    pool.running = 1;
  }
  pool.x = x, pool.output = output, pool.weights = weights, pool.seq_len = seq_len, pool.state = REQUESTED;
  pthread_cond_broadcast(&pool.changed);
  while (pool.state != DONE) pthread_cond_wait(&pool.changed, &pool.lock);
  pool.state = IDLE;
  pthread_mutex_unlock(&pool.lock);
}
