/* The entry points that a candidate with a handle has beside solve_block_update and solve_block_forward: one handle, on a copy of the weights. */
#ifndef HANDLE_H
#define HANDLE_H

#include "candidate.h"

static float handle[WEIGHTS_LEN];

int solve_block_update(void* block, const float* weights, void* stream);

int solve_block_create(const float* weights, const void* options, void** block) {
  (void)options;
  *block = handle;
  return solve_block_update(handle, weights, NULL);
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  honest_block(x, output, weights, seq_len);
}

#endif
