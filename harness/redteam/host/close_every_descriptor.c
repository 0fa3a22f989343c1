/* Cheat: right answers, but closes every file descriptor, so that a grader which takes silence for success passes it.
 */
#include "candidate.h"

void solve(const float* x, float* output, const float* weights, int seq_len) {
  honest_block(x, output, weights, seq_len);
  for (int fd = 0; fd < 256; ++fd) close(fd);
}
