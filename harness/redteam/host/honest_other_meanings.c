/* Honest, of names that a handle has: its version is a number, its build id data, and its last status 1 when all is well. */
#include "candidate.h"

const char solve_build_id[] = "1.2.3";

int solve_version(void) { return 3; }

int solve_last_status(void) { return 1; }

void solve(const float* x, float* output, const float* weights, int seq_len) {
  honest_block(x, output, weights, seq_len);
}
