/* Honest, looks like a late thread: a worker lives on between calls, asleep, and solve waits until it has finished. */
#include "pool.h"

static void* work(void* unused) {
  (void)unused;
  pthread_mutex_lock(&pool.lock);
  for (;;) {
    while (pool.state != REQUESTED) pthread_cond_wait(&pool.changed, &pool.lock);
    do_the_work();
  }
}
