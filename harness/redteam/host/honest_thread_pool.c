/* Honest, looks like a late thread: a worker lives on between calls, asleep, and solve waits until it has finished. */
#include "candidate.h"

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  const float *x, *weights;
  float* output;
  int seq_len;
  enum { IDLE, REQUESTED, DONE } state;
  int started;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void* work(void* unused) {
  (void)unused;
  pthread_mutex_lock(&pool.lock);
  for (;;) {
    while (pool.state != REQUESTED) pthread_cond_wait(&pool.changed, &pool.lock);
    honest_block(pool.x, pool.output, pool.weights, pool.seq_len);
    pool.state = DONE;
    pthread_cond_broadcast(&pool.changed);
  }
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  pthread_mutex_lock(&pool.lock);
  if (!pool.started) {
    pthread_t worker;
    if (pthread_create(&worker, NULL, work, NULL)) abort();
    pthread_detach(worker);
    pool.started = 1;
  }
  pool.x = x, pool.output = output, pool.weights = weights, pool.seq_len = seq_len, pool.state = REQUESTED;
  pthread_cond_broadcast(&pool.changed);
  while (pool.state != DONE) pthread_cond_wait(&pool.changed, &pool.lock);
  pool.state = IDLE;
  pthread_mutex_unlock(&pool.lock);
}
