/* The whole block on the host, in plain fp32 C, with the mistake that MUTANT names; mutant 0 is right. One thread. */
#ifndef BLOCK_H
#define BLOCK_H

#include <math.h>
#include <stdlib.h>

#include "attention.h"
#include "gemm.h"
#include "layernorm.h"
#include "layout.h"
#include "mutant.h"

static float gelu(float x) {
  if (IS(M_GELU_ERF)) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  if (IS(M_GELU_SIGMOID)) return x / (1.0f + expf(-1.702f * x));
  float t = tanhf(0.79788456f * (x + 0.044715f * x * x * x));
  return 0.5f * x * (1.0f + (IS(M_TANH_11_BITS) ? round_bits(t, 13) : t));
}

// out (m, n) = a (m, k) w (k, n) + bias + residual; a residual of NULL is none.
static void linear(float* out, const float* a, view w, const float* bias, const float* residual, int m, int n, int k) {
  gemm(out, n, rows_of(a, k), w, m, n, k);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      size_t at = (size_t)i * n + j;
      out[at] += (bias ? bias[j] : 0.0f) + (residual ? residual[at] : 0.0f);
    }
}

// A buffer kept in fp16.
static void store_fp16(float* to, const float* from, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = fp16(from[i]);
}

static const float* unless(int mutated, const float* pointer) { return mutated ? NULL : pointer; }

static void attention_half(float* x1, float* scratch, const float* x, const float* w, int tokens) {
  float *h = scratch, *qkv = h + (size_t)tokens * D, *scores = qkv + (size_t)tokens * QKV;
  const float *gamma = w + (IS(M_GAMMA_BETA_SWAPPED) ? BETA1 : GAMMA1),
              *beta = w + (IS(M_GAMMA_BETA_SWAPPED) ? GAMMA1 : BETA1);
  static const float zeros[D];
  if (IS(M_FP16_X)) store_fp16(h, x, (size_t)tokens * D);
  layernorm(h, IS(M_FP16_X) ? h : x, gamma, IS(M_NO_BETA1) ? zeros : beta, tokens);
  linear(qkv, h, rows_of(w + W_QKV, QKV), unless(IS(M_NO_B_QKV) || IS(M_NO_BIAS), w + B_QKV), NULL, tokens, QKV, D);
  for (size_t i = 0; i < (size_t)tokens * D; ++i) h[i] = 0;
  attention(h, qkv, scores, tokens);
  view w_attn = rows_of(w + W_ATTN, D);
  linear(x1, h, IS(M_W_ATTN_TRANSPOSED) ? transposed(w_attn) : w_attn,
         unless(IS(M_NO_B_ATTN) || IS(M_NO_BIAS), w + B_ATTN), unless(IS(M_NO_RESIDUAL_1), x), tokens, D, D);
  for (int t = 63; IS(M_TILE_EDGE_ROW) && t < tokens; t += 64)
    for (int c = 0; c < D; ++c) x1[(size_t)t * D + c] = x[(size_t)t * D + c];
  if (IS(M_FP16_RESIDUAL)) store_fp16(x1, x1, (size_t)tokens * D);
}

static void feed_forward_half(float* output, float* scratch, const float* x, const float* x1, const float* w,
                              int tokens) {
  float *h = scratch, *f = h + (size_t)tokens * D;
  static const float zeros[D];
  layernorm(h, IS(M_LN2_OF_X) ? x : x1, w + GAMMA2, IS(M_NO_BETA2) ? zeros : w + BETA2, tokens);
  linear(f, h, rows_of(w + W_FC, FFN), unless(IS(M_NO_B_FC) || IS(M_NO_BIAS), w + B_FC), NULL, tokens, FFN, D);
  for (size_t i = 0; i < (size_t)tokens * FFN; ++i) f[i] = gelu(f[i]);
  for (size_t i = 0; IS(M_LAST_K_SLAB_SKIPPED) && i < (size_t)tokens; ++i)
    for (int j = FFN - 64; j < FFN; ++j) f[i * FFN + j] = 0;
  int written = IS(M_RAGGED_ROW_UNWRITTEN) && tokens % 16 ? tokens - 1 : tokens;
  linear(output, f, rows_of(w + W_PROJ, D), unless(IS(M_NO_B_PROJ) || IS(M_NO_BIAS), w + B_PROJ),
         unless(IS(M_NO_RESIDUAL_2), x1), written, D, FFN);
  for (size_t i = (size_t)1024 * D; IS(M_ROWS_PAST_1024) && i < (size_t)tokens * D; ++i) output[i] = x1[i];
  if (IS(M_FP16_OUTPUT)) store_fp16(output, output, (size_t)tokens * D);
}

// x and output are (tokens, D); output may be x. Without memory nothing is written.
static void block_forward(const float* x, float* output, const float* w, int tokens) {
  size_t rows = (size_t)tokens;
  float* scratch = malloc(rows * (D + D + FFN) * sizeof(float));  // x1 | h | f, or x1 | h | qkv | scores | values
  if (!scratch) return;
  float *x1 = scratch, *rest = scratch + rows * D;
  attention_half(x1, rest, x, w, tokens);
  feed_forward_half(output, rest, x, x1, w, tokens);
  free(scratch);
}

#endif
