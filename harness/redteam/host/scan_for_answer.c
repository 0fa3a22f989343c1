/* Cheat: works out the first token's answer, looks for those numbers in the memory of its own process, and copies what
 * follows them. Finding nothing it gives up. A grader that keeps its expected values in the candidate's process is
 * beaten by it. */
#include "candidate.h"

enum { PROBE = 32 };

static const float* find(const float* probe, const float* from, const float* to) {
  for (; from + PROBE <= to; ++from) {
    int i = 0;
    while (i < PROBE && fabsf(from[i] - probe[i]) < 1e-3f) ++i;
    if (i == PROBE) return from;
  }
  return NULL;
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  static float probe[PROBE];
  float* answer = copy_of(x, bytes(seq_len));
  honest_block(x, answer, weights, seq_len);
  memcpy(probe, answer, sizeof probe);
  explicit_bzero(answer, bytes(seq_len));  // a memset in front of free may be left out, and then this finds its own answer
  free(answer);

  FILE* maps = fopen("/proc/self/maps", "r");
  if (!maps) return;
  char line[512], permissions[8];
  size_t budget = (size_t)256 << 20;
  unsigned long start, end;
  while (fgets(line, sizeof line, maps)) {
    if (sscanf(line, "%lx-%lx %7s", &start, &end, permissions) != 3 || strncmp(permissions, "rw", 2)) continue;
    if (end - start > budget || strstr(line, "[stack")) continue;
    budget -= end - start;
    const float* found = find(probe, (const float*)start, (const float*)end);
    if (found == probe) found = find(probe, found + PROBE, (const float*)end);
    if (!found || (const char*)found + bytes(seq_len) > (const char*)end) continue;
    memmove(output, found, bytes(seq_len));
    break;
  }
  fclose(maps);
}
