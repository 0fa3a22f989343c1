/* What the phases share: the four matrices, how each is cut into slices, and where things lie in the workspace. */
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "dims.h"

namespace small {

constexpr int MAX_ROWS = 64;
constexpr int WARPS = 12;  // a warp each for 64 input features of a 768-deep product, and for a head
constexpr int THREADS = 32 * WARPS;
constexpr int MAX_GRID = 128;
constexpr int COLS = 24;  // columns of a slice, but for the narrow matrices' up to 16 rows

/* A matrix (K, N) of the block, its place in the caller's buffer, and GROUP: how many neighbouring k a lane takes for its own, which is what
   its vector loads of A bring (stream.cuh). */
struct Qkv {
  static constexpr int K = D, N = QKV, OFFSET = W_QKV, GROUP = 4;
};
struct Attn {
  static constexpr int K = D, N = D, OFFSET = W_ATTN, GROUP = 16;
};
struct Fc {
  static constexpr int K = D, N = FFN, OFFSET = W_FC, GROUP = 4;
};
struct Proj {
  static constexpr int K = FFN, N = D, OFFSET = W_PROJ, GROUP = 8;
};

/* The part of matrix M that a CTA takes: ROWS x WIDTH, K / ROWS splits of one column range lying next to each other in the numbering. */
template <class M, int ROWS_, int WIDTH_>
struct Slice {
  using Matrix = M;
  static constexpr int ROWS = ROWS_, WIDTH = WIDTH_, TILES = WIDTH / 8, SPLITS = M::K / ROWS;
  static constexpr int COUNT = M::N / WIDTH * SPLITS;
  static constexpr int STEPS = ROWS / 16 / WARPS;  // of the MMA, for each warp (attn: of its head, see there)
  static __device__ __forceinline__ int split(int slice) { return slice % SPLITS; }
  static __device__ __forceinline__ int row(int slice) { return slice % SPLITS * ROWS; }
  static __device__ __forceinline__ int column(int slice) { return slice / SPLITS * WIDTH; }
};

/* The cuts for MT tiles of 16 rows. Up to 16 rows no product is split along K across CTAs. Above, the two narrow
   ones (768 columns) are, and the splits' sums meet in the workspace: the activations a CTA reads stay few. */
template <int MT>
struct Cut {
  static constexpr int NARROW = MT == 1 ? 8 : COLS;
  using Qkv = Slice<small::Qkv, D, COLS>;
  using Attn = Slice<small::Attn, D / MT, NARROW>;
  using Fc = Slice<small::Fc, D, COLS>;
  using Proj = Slice<small::Proj, MT == 1 ? FFN : FFN / 4, NARROW>;
};

/* Activations on their way from one phase to the next, twice: a launch works in one copy and clears the other. */
struct Exchange {
  __half qkv[MAX_ROWS][QKV];
  float x1[MAX_ROWS][D];
  __half f[MAX_ROWS][FFN];
  float attn_sums[4][MAX_ROWS][D];
  float proj_sums[4][MAX_ROWS][D];
};

struct Epoch {
  uint32_t launches;  // how many launches this CTA has seen; its parity picks the copy
  uint32_t rows;      // of the last one: what is to be cleared
};

struct Workspace {
  Epoch epoch[MAX_GRID];
  Exchange copy[2];
};

/* The vectors among the parameters, in fp32. beta follows gamma. */
struct Vectors {
  const float *norm1, *b_qkv, *b_attn, *norm2, *b_fc, *b_proj;
};

}  // namespace small
