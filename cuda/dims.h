/* The shape of the block, once for every kernel. src/dims.rs holds the same numbers; tests/layout.rs asserts that they agree. */
#pragma once

constexpr int D = 768;         // model width
constexpr int HEADS = 12;      // attention heads
constexpr int HEAD_DIM = 64;   // D / HEADS
constexpr int QKV = 3 * D;     // width of the fused Q | K | V buffer
constexpr int FFN = 4 * D;     // width of the feed-forward hidden layer
constexpr float LN_EPS = 1e-5f;

// Offsets into the one weight buffer, in floats. Matrices are stored (in, out).
constexpr int GAMMA1 = 0;
constexpr int BETA1 = GAMMA1 + D;
constexpr int W_QKV = BETA1 + D;
constexpr int B_QKV = W_QKV + D * QKV;
constexpr int W_ATTN = B_QKV + QKV;
constexpr int B_ATTN = W_ATTN + D * D;
constexpr int GAMMA2 = B_ATTN + D;
constexpr int BETA2 = GAMMA2 + D;
constexpr int W_FC = BETA2 + D;
constexpr int B_FC = W_FC + D * FFN;
constexpr int W_PROJ = B_FC + FFN;
constexpr int B_PROJ = W_PROJ + FFN * D;
constexpr int WEIGHTS_LEN = B_PROJ + D;
static_assert(WEIGHTS_LEN == 7087872, "the layout of the challenge");
