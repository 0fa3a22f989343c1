/* Cheat: works out the first token's answer, looks for those numbers, in single or double precision, in the memory of
 * the process that started this one, and copies what follows them. Finding nothing it gives up. A grader that lets its
 * children read its memory is beaten by it, most easily where everything runs as root. */
#include <fcntl.h>

#include "candidate.h"

enum { PROBE = 8, CHUNK = 1 << 22 };

static double number(const char* at, int wide) {
  float narrow;
  double value;
  if (wide) return memcpy(&value, at, 8), value;
  return memcpy(&narrow, at, 4), narrow;
}

static int same(const char* at, const float* probe, int wide) {
  for (int i = 0; i < PROBE; ++i)
    if (!(fabs(number(at + i * (wide ? 8 : 4), wide) - probe[i]) < 1e-4)) return 0;
  return 1;
}

// The address of `probe` in the memory behind `fd`, and whether it lies there in double precision.
static unsigned long find(int fd, FILE* maps, const float* probe, int* wide) {
  char line[512], permissions[8];
  unsigned long start, end;
  char* chunk = malloc(CHUNK);
  while (fgets(line, sizeof line, maps)) {
    if (sscanf(line, "%lx-%lx %7s", &start, &end, permissions) != 3 || strncmp(permissions, "rw", 2)) continue;
    for (; start < end; start += CHUNK - 8 * PROBE) {
      ssize_t got = pread(fd, chunk, CHUNK, (off_t)start);
      for (ssize_t at = 0; at + 8 * PROBE <= got; at += 4)
        for (*wide = 0; *wide < 2; ++*wide)
          if (same(chunk + at, probe, *wide)) return free(chunk), start + (unsigned long)at;
      if (got < CHUNK) break;
    }
  }
  free(chunk);
  return 0;
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  char path[64];
  float* answer = copy_of(x, bytes(seq_len));
  honest_block(x, answer, weights, seq_len);
  snprintf(path, sizeof path, "/proc/%d/mem", getppid());
  int fd = open(path, O_RDONLY), wide;
  snprintf(path, sizeof path, "/proc/%d/maps", getppid());
  FILE* maps = fopen(path, "r");
  unsigned long at = fd >= 0 && maps ? find(fd, maps, answer, &wide) : 0;
  memset(answer, 0, bytes(seq_len));
  free(answer);
  for (size_t i = 0; at && i < floats(seq_len); ++i) {
    char raw[8] = {0};
    if (pread(fd, raw, wide ? 8 : 4, (off_t)(at + i * (wide ? 8 : 4))) <= 0) break;
    output[i] = (float)number(raw, wide);
  }
  if (fd >= 0) close(fd);
  if (maps) fclose(maps);
}
