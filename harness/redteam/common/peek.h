/* For cheats that read in buffers of an earlier call: a later one may have fenced what lies there, and nothing faults here. _GNU_SOURCE comes first. */
#ifndef PEEK_H
#define PEEK_H

#include <sys/uio.h>
#include <unistd.h>

static inline int peek(void* to, const void* from, size_t size) {
  struct iovec here = {to, size}, there = {(void*)from, size};
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)size;
}

#endif
