/* att = softmax(Q K^T / 8) V for every head over all keys, 64 queries at a time, so memory stays linear in the number
 * of tokens. qkv is (tokens, QKV) as Q | K | V, head i at columns 64 i of each; att is (tokens, D). */
#ifndef ATTENTION_H
#define ATTENTION_H

#include "gemm.h"
#include "layout.h"

enum { QUERIES = 64, KEY_TILE = 64 };

static const float SCORE_SCALE = IS(M_NO_SCALE) ? 1.0f : IS(M_SCALE_SQRT_D) ? 0.036084392f : 0.125f;

static float largest(const float* scores, int keys, float start) {
  for (int j = 0; j < keys; ++j) start = fmaxf(start, scores[j]);
  return start;
}

// The mistakes that change a score before the softmax sees it.
static void mask(float* scores, int keys, int query) {
  for (int j = 0; j < keys; ++j) {
    if (IS(M_UNIFORM)) scores[j] = 0;
    if (IS(M_BF16_SCORES)) scores[j] = round_bits(scores[j], 16);
    if (IS(M_CAUSAL) && j > query) scores[j] = -INFINITY;
    if (IS(M_KEY_DROPPED) && j > 0 && j == keys - 1) scores[j] = -INFINITY;
  }
}

// Turns scaled scores into probabilities.
static void softmax(float* scores, int keys) {
  float max = IS(M_NO_MAX) ? 0.0f : IS(M_NO_RESCALE) ? -INFINITY : largest(scores, keys, -INFINITY), sum = 0;
  for (int start = 0; start < keys; start += KEY_TILE) {
    int end = smaller(start + KEY_TILE, keys);
    if (IS(M_NO_RESCALE)) max = largest(scores + start, end - start, max);
    for (int j = start; j < end; ++j) sum += scores[j] = expf(scores[j] - max);
  }
  if (IS(M_SINK)) sum += expf(-max);
  if (IS(M_PADDED_KEYS)) sum += (float)(-keys & 15) * expf(-max);
  for (int j = 0; j < keys; ++j) {
    scores[j] /= sum;
    if (IS(M_BF16_PROBABILITIES)) scores[j] = round_bits(scores[j], 16);
    if (IS(M_FP8_PROBABILITIES)) scores[j] = round_bits(scores[j], 20);
  }
}

// One head of q, k or v: (tokens, HEAD_DIM).
static view head_of(const float* qkv, int part, int head) {
  view all = rows_of(qkv + (size_t)part * D, QKV);
  if (IS(M_HEADS_INTERLEAVED)) return (view){all.at + head, QKV, HEADS};
  return from(all, 0, (size_t)head * HEAD_DIM);
}

// Rows of a view as some kernel with a wrong index would read them.
static void misread(float* copy, view v, int tokens) {
  for (int t = 0; t < tokens; ++t) {
    int source = IS(M_STALE_V) && t > 0 ? t - 1 : IS(M_KEYS_WRAP_AT_256) ? t & 255 : t;
    for (int c = 0; c < HEAD_DIM; ++c) copy[(size_t)t * HEAD_DIM + c] = v.at[(size_t)source * v.row + c * v.col];
  }
}

// `scratch` holds QUERIES x tokens scores, then tokens x HEAD_DIM values.
static void attention(float* att, const float* qkv, float* scratch, int tokens) {
  float *scores = scratch, *values = scratch + (size_t)QUERIES * tokens;
  for (int head = 0; head < HEADS - IS(M_LAST_HEAD_SKIPPED); ++head) {
    view q = head_of(qkv, IS(M_QK_SWAPPED) ? 1 : 0, head), k = head_of(qkv, IS(M_QK_SWAPPED) ? 0 : 1, head);
    misread(values, head_of(qkv, 2, head), tokens);
    for (int first = 0; first < tokens; first += QUERIES) {
      int queries = smaller(QUERIES, tokens - first);
      gemm(scores, tokens, from(q, first, 0), transposed(k), queries, tokens, HEAD_DIM);
      for (int i = 0; i < queries; ++i) {
        float* row = scores + (size_t)i * tokens;
        for (int j = 0; j < tokens; ++j) row[j] *= SCORE_SCALE;
        mask(row, tokens, first + i);
        softmax(row, tokens);
      }
      gemm(att + (size_t)first * D + head * HEAD_DIM, D, rows_of(scores, tokens), rows_of(values, HEAD_DIM), queries,
           HEAD_DIM, tokens);
    }
  }
}

#endif
