/* Which mistake this build makes. -DMUTANT=<id> picks one; the ids are those of mutants.json and are append-only. */
#ifndef MUTANT_H
#define MUTANT_H

enum {
  M_CONTROL = 0,

  // biases
  M_NO_B_QKV = 1,
  M_NO_B_ATTN = 2,
  M_NO_B_FC = 3,
  M_NO_B_PROJ = 4,
  M_NO_BIAS = 5,

  // GELU
  M_GELU_ERF = 6,
  M_GELU_SIGMOID = 7,

  // LayerNorm
  M_EPS_1E6 = 8,
  M_EPS_0 = 9,
  M_VAR_D_MINUS_1 = 10,
  M_VAR_ONE_PASS = 11,
  M_GAMMA_BETA_SWAPPED = 12,
  M_NO_BETA1 = 13,
  M_NO_BETA2 = 14,
  M_LN2_OF_X = 15,

  // softmax
  M_NO_MAX = 16,
  M_SINK = 17,
  M_SCALE_SQRT_D = 18,
  M_NO_SCALE = 19,
  M_UNIFORM = 20,
  M_NO_RESCALE = 21,
  M_PADDED_KEYS = 22,

  // which token attends to which
  M_CAUSAL = 23,
  M_KEY_DROPPED = 24,
  M_KEYS_WRAP_AT_256 = 25,
  M_STALE_V = 26,
  M_QK_SWAPPED = 27,
  M_HEADS_INTERLEAVED = 28,
  M_LAST_HEAD_SKIPPED = 29,

  // residuals and matrices
  M_NO_RESIDUAL_1 = 30,
  M_NO_RESIDUAL_2 = 31,
  M_W_ATTN_TRANSPOSED = 32,
  M_LAST_K_SLAB_SKIPPED = 33,

  // rows
  M_RAGGED_ROW_UNWRITTEN = 34,
  M_TILE_EDGE_ROW = 35,
  M_ROWS_PAST_1024 = 36,

  // operand precision of every product
  M_BF16 = 37,
  M_FP8 = 38,
  M_TF32_TRUNCATED = 39,
  M_FP16_NO_RANGE = 40,
  M_TF32_ROUNDED = 41,

  // precision of what lies between the products
  M_FP16_RESIDUAL = 42,
  M_FP16_X = 43,
  M_FP16_OUTPUT = 44,
  M_BF16_SCORES = 45,
  M_BF16_PROBABILITIES = 46,
  M_FP8_PROBABILITIES = 47,
  M_TANH_11_BITS = 48
};

#ifndef MUTANT
#define MUTANT M_CONTROL
#endif

#define IS(mutant) (MUTANT == (mutant))

#endif
