/* c = a b for strided matrices in fp32, the one product under every stage.
 *
 * a is (m, k), b is (k, n), c is (m, n); `view` carries the step between rows and between columns, so a transpose is a
 * view. Panels of b (KC x NC) and of a (MC x KC) are packed to stay in L2 and L1; the MR x NR tile of c stays in
 * registers. Limiter: FMA throughput. */
#ifndef GEMM_H
#define GEMM_H

#include <stddef.h>

#include "operand.h"

enum { MR = 6, NR = 16, MC = 96, KC = 256, NC = 192 };

typedef struct {
  const float* at;
  size_t row, col;
} view;

static view rows_of(const float* at, size_t width) { return (view){at, width, 1}; }
static view transposed(view v) { return (view){v.at, v.col, v.row}; }
static view from(view v, size_t i, size_t j) { return (view){v.at + i * v.row + j * v.col, v.row, v.col}; }
static int smaller(int a, int b) { return a < b ? a : b; }

// Packs `count` x k elements as strips of `strip`, each strip with its `strip` lanes adjacent for one k; missing lanes
// are zero.
static void pack(float* packed, view v, int count, int k, int strip) {
  for (int s = 0; s < count; s += strip)
    for (int p = 0; p < k; ++p)
      for (int lane = 0; lane < strip; ++lane)
        *packed++ = s + lane < count ? operand(v.at[(size_t)(s + lane) * v.row + (size_t)p * v.col]) : 0.0f;
}

typedef float lanes __attribute__((vector_size(32), aligned(4)));

// One tile of c from a strip of a and a strip of b: 2 MR vectors of 8 sums.
static void tile(int k, const float* a, const float* b, float* c, size_t width, int m, int n, int accumulate) {
  lanes left[MR] = {0}, right[MR] = {0};
  for (int p = 0; p < k; ++p, a += MR, b += NR) {
    lanes b_left = *(const lanes*)b, b_right = *(const lanes*)(b + 8);
    for (int i = 0; i < MR; ++i) {
      left[i] += a[i] * b_left;
      right[i] += a[i] * b_right;
    }
  }
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j)
      c[i * width + j] = (accumulate ? c[i * width + j] : 0.0f) + (j < 8 ? left[i][j] : right[i][j - 8]);
}

static void gemm(float* c, size_t width, view a, view b, int m, int n, int k) {
  static _Thread_local float packed_a[MC * KC], packed_b[KC * NC];
  for (int j = 0; j < n; j += NC)
    for (int p = 0; p < k; p += KC) {
      int nc = smaller(NC, n - j), kc = smaller(KC, k - p);
      pack(packed_b, transposed(from(b, p, j)), nc, kc, NR);
      for (int i = 0; i < m; i += MC) {
        int mc = smaller(MC, m - i);
        pack(packed_a, from(a, i, p), mc, kc, MR);
        for (int jt = 0; jt < nc; jt += NR)
          for (int it = 0; it < mc; it += MR)
            tile(kc, packed_a + it * kc, packed_b + jt * kc, c + (size_t)(i + it) * width + j + jt, width,
                 smaller(MR, mc - it), smaller(NR, nc - jt), p > 0);
      }
    }
}

#endif
