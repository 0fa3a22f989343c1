/* Honest, looks like a cache: keeps 1 GiB of address space and writes 64 MiB of it on the first call. */
#include <sys/mman.h>

#include "candidate.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  static char* workspace;
  if (!workspace) {
    workspace = mmap(NULL, 1u << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (workspace == MAP_FAILED) abort();
    memset(workspace, 1, 64 << 20);
  }
  honest_block(x, output, weights, seq_len);
}
