/* A worker that does the work while solve waits; what it does between calls is for the candidate to say, in `work`. */
#ifndef POOL_H
#define POOL_H

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

// The worker. It takes the lock, and leaves `running` 0 when it ends.
static void* work(void* unused);

// By the worker, with the lock, when a call is REQUESTED.
static void do_the_work(void) {
  honest_block(pool.x, pool.output, pool.weights, pool.seq_len);
  pool.state = DONE;
  pthread_cond_broadcast(&pool.changed);
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

#endif
