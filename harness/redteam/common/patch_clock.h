/* Replaces clock_gettime in the program that loaded this library by `forged_clock`, which the candidate defines. */
#ifndef PATCH_CLOCK_H
#define PATCH_CLOCK_H

#include "patch_imports.h"

#include <time.h>

static int forged_clock(clockid_t id, struct timespec* now);

static void* replacement(const char* name) { return strcmp(name, "clock_gettime") ? NULL : (void*)forged_clock; }

static inline int64_t nanoseconds(const struct timespec* t) { return t->tv_sec * 1000000000LL + t->tv_nsec; }

static inline void set_nanoseconds(struct timespec* t, int64_t ns) {
  t->tv_sec = ns / 1000000000LL;
  t->tv_nsec = ns % 1000000000LL;
}

#endif
