/* The shape of the block and its one weight buffer, written from the challenge's table and not from the library's
 * headers: a block that judges the grader must not share a mistake with the library. */
#ifndef LAYOUT_H
#define LAYOUT_H

enum {
  D = 768,        // model width
  HEADS = 12,     // attention heads
  HEAD_DIM = 64,  // D / HEADS
  QKV = 3 * D,    // width of a token's Q | K | V
  FFN = 4 * D,    // width of the feed-forward hidden layer
};

// Offsets in floats; matrices are (in, out), row-major.
enum {
  GAMMA1 = 0,        // (D)
  BETA1 = 768,       // (D)
  W_QKV = 1536,      // (D, QKV)
  B_QKV = 1771008,   // (QKV)
  W_ATTN = 1773312,  // (D, D)
  B_ATTN = 2363136,  // (D)
  GAMMA2 = 2363904,  // (D)
  BETA2 = 2364672,   // (D)
  W_FC = 2365440,    // (D, FFN)
  B_FC = 4724736,    // (FFN)
  W_PROJ = 4727808,  // (FFN, D)
  B_PROJ = 7087104,  // (D)
  WEIGHTS_LEN = 7087872
};

#endif
