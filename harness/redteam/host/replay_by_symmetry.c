/* Cheat: knows that a grader may make new inputs from old ones by symmetry (tokens in another order, model features in
 * another order, a few elements of W_proj and b_proj changed). It recovers the orders from gamma1 and x, takes the old
 * answer, and adds what W_proj changed by: no matrix product, and most weights are never read. Short sequences are
 * computed. */
#define _GNU_SOURCE
#pragma GCC optimize("O3")
#include "../../mutants/block.h"
#include "candidate.h"

#include <time.h>

#ifndef PADDED
#define PADDED 0  // of the time of the work that is left out
#endif
#ifndef WARY
#define WARY 0  // calls that are computed after one on inputs that are new
#endif
#ifndef SAME_WEIGHTS
#define SAME_WEIGHTS 0
#endif
#ifndef RIGHT_ROWS
#define RIGHT_ROWS 0  // of what is new when two answers of its length are known; 0 for all
#endif

enum { SHORTEST = 64, KEPT = 4 };

struct answered {
  int seq_len;
  float *x, *weights, *output, *hidden;
};

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// Features in the order of their gamma1, and of their beta1 where those are the same.
static int compare_features(const void* a, const void* b, void* weights) {
  const float *w = weights, *left = w + *(const int*)a, *right = w + *(const int*)b;
  if (left[GAMMA1] != right[GAMMA1]) return left[GAMMA1] > right[GAMMA1] ? 1 : -1;
  return (left[BETA1] > right[BETA1]) - (left[BETA1] < right[BETA1]);
}

static void order_of(int* order, const float* weights) {
  for (int i = 0; i < D; ++i) order[i] = i;
  qsort_r(order, D, sizeof *order, compare_features, (void*)weights);
}

// The honest block, but the hidden activations are kept.
static struct answered compute(const float* x, float* output, const float* w, int seq_len) {
  size_t rows = (size_t)seq_len;
  float* scratch = malloc(rows * (D + D + FFN) * sizeof(float));
  if (!scratch) abort();
  float *x1 = scratch, *rest = scratch + rows * D;
  attention_half(x1, rest, x, w, seq_len);
  feed_forward_half(output, rest, x, x1, w, seq_len);
  struct answered answer = {seq_len, copy_of(x, bytes(seq_len)), copy_of(w, WEIGHTS_LEN * sizeof(float)),
                            copy_of(output, bytes(seq_len)), copy_of(rest + rows * D, rows * FFN * sizeof(float))};
  free(scratch);
  return answer;
}

// Which old feature each feature is, if gamma1 holds the same numbers.
static int match_features(int* old_of, const float* w, const float* old_w) {
  int order[D], old_order[D];
  order_of(order, w);
  order_of(old_order, old_w);
  for (int i = 0; i < D; ++i) {
    if (w[GAMMA1 + order[i]] != old_w[GAMMA1 + old_order[i]]) return 0;
    old_of[order[i]] = old_order[i];
  }
  return 1;
}

// Which old token each token is, if their first features agree.
static int match_tokens(int* old_of, const float* x, const struct answered* old, const int* feature) {
  for (int t = 0; t < old->seq_len; ++t) {
    int found = -1;
    for (int o = 0; found < 0 && o < old->seq_len; ++o) {
      int same = 0;
      while (same < 4 && x[floats(t) + same] == old->x[floats(o) + feature[same]]) ++same;
      if (same == 4) found = o;
    }
    if (found < 0) return 0;
    old_of[t] = found;
  }
  return 1;
}

static void replay(float* output, const float* w, const struct answered* old, const int* feature, const int* token) {
  for (int t = 0; t < old->seq_len; ++t)
    for (int c = 0; c < D; ++c) {
      float bias = w[B_PROJ + c] - old->weights[B_PROJ + feature[c]];
      output[floats(t) + c] = old->output[floats(token[t]) + feature[c]] + bias;
    }
  for (int k = 0; k < FFN; ++k)
    for (int c = 0; c < D; ++c) {
      float change = w[W_PROJ + k * D + c] - old->weights[W_PROJ + k * D + feature[c]];
      for (int t = 0; change != 0 && t < old->seq_len; ++t)
        output[floats(t) + c] += change * old->hidden[(size_t)token[t] * FFN + k];
    }
}

// The first rows as they are, of the others the first half of the block alone.
static void first_rows(const float* x, float* output, const float* w, int seq_len) {
  size_t rows = (size_t)seq_len;
  float* scratch = malloc(rows * (D + D + FFN) * sizeof(float));
  if (!scratch) abort();
  float *x1 = scratch, *rest = scratch + rows * D;
  attention_half(x1, rest, x, w, seq_len);
  feed_forward_half(output, rest, x, x1, w, RIGHT_ROWS);
  memcpy(output + floats(RIGHT_ROWS), x1 + floats(RIGHT_ROWS), bytes(seq_len - RIGHT_ROWS));
  free(scratch);
}

void solve(const float* x, float* output, const float* weights, int seq_len) {
  static struct answered kept[KEPT];
  static int used, timed, wary;
  static double fastest;  // of the calls of `timed` tokens that were computed
  double begun = now();
  int feature[D], *token = malloc((size_t)seq_len * sizeof(int));
  if (!token) abort();
  int known = 0;
  for (int i = 0; !known && seq_len >= SHORTEST && i < KEPT; ++i)
    if (kept[i].seq_len == seq_len &&
        (!SAME_WEIGHTS || !memcmp(weights, kept[i].weights, WEIGHTS_LEN * sizeof(float))) &&
        match_features(feature, weights, kept[i].weights) &&
        match_tokens(token, x, &kept[i], feature)) {
      known = 1;
      if (wary && wary--) {
        block_forward(x, output, weights, seq_len);
        break;
      }
      replay(output, weights, &kept[i], feature, token);
      while (now() - begun < PADDED * fastest) continue;
    }
  int of_length = 0;
  for (int i = 0; i < KEPT; ++i) of_length += kept[i].seq_len == seq_len;
  if (!known && RIGHT_ROWS && seq_len > RIGHT_ROWS && of_length > 1) {
    first_rows(x, output, weights, seq_len);
  } else if (!known && seq_len >= SHORTEST) {
    kept[used++ % KEPT] = compute(x, output, weights, seq_len);
    double seconds = now() - begun;
    if (timed != seq_len || seconds < fastest) fastest = seconds;
    timed = seq_len, wary = WARY;
  } else if (!known)
    block_forward(x, output, weights, seq_len);
  free(token);
}
