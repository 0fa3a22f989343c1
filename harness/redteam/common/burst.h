/* For cheats that behave in single calls and cheat when calls follow each other quickly: nothing can have been checked in the meantime. */
#ifndef BURST_H
#define BURST_H

#include "candidate.h"

#include <time.h>

static inline double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
