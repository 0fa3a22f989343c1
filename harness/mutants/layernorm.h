/* h = (x - mean) / sqrt(variance + eps) gamma + beta over the D numbers of each token; the variance is biased and taken
 * about the mean. */
#ifndef LAYERNORM_H
#define LAYERNORM_H

#include "layout.h"
#include "mutant.h"

static const float LN_EPS = IS(M_EPS_0) ? 0.0f : IS(M_EPS_1E6) ? 1e-6f : 1e-5f;

static float variance(const float* x, float mean) {
  float sum = 0, squares = 0;
  for (int c = 0; c < D; ++c) {
    float centred = x[c] - mean;
    sum += centred * centred;
    squares += x[c] * x[c];
  }
  if (IS(M_VAR_ONE_PASS)) return fmaxf(squares / D - mean * mean, 0.0f);
  return sum / (IS(M_VAR_D_MINUS_1) ? D - 1 : D);
}

static void layernorm(float* h, const float* x, const float* gamma, const float* beta, int tokens) {
  for (int t = 0; t < tokens; ++t, x += D, h += D) {
    float mean = 0;
    for (int c = 0; c < D; ++c) mean += x[c];
    mean /= D;
    float scale = 1.0f / sqrtf(variance(x, mean) + LN_EPS);
    for (int c = 0; c < D; ++c) h[c] = (x[c] - mean) * scale * gamma[c] + beta[c];
  }
}

#endif
