/* Wrong: loads 4 KiB before and behind each of its buffers and uses none of it: a fault where a buffer begins or ends with the last page there is. */
#include "candidate.h"

static volatile float sink;

static void read_around(const float* v, size_t count) {
  for (int i = 0; i < 1024; ++i) sink = v[count + i], sink = v[-1 - i];
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  read_around(x, floats(seq_len));
  read_around(output, floats(seq_len));
  read_around(weights, WEIGHTS_LEN);
  honest_block(x, output, weights, seq_len);
}
