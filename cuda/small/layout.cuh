/* What the phases share: the four matrices, how each is cut into slices, and where things lie in the workspace. */
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "common/alarm.cuh"
#include "dims.h"

namespace small {

constexpr int MAX_ROWS = 32;
constexpr int MAX_SINGLES = 64;  // prepared sequences of one token
constexpr int FP32_ROWS = 8;  // of products in fp32
constexpr int WARPS = 12;  // that compute: a warp each for 64 input features of a 768-deep product, and for a head
constexpr int THREADS = 32 * WARPS;  // that compute
constexpr int BLOCK = THREADS + 32;  // and the producer's (producer.cuh)
constexpr int MAX_GRID = 128;
constexpr int COLS = 24;  // columns of a slice; of a narrow matrix (768 columns) whose K is not split, 8
constexpr int PAIR_COLS = 16;  // and where a pair of blocks has the halves of K (pair.cuh)

/* A matrix (K, N) of the block, its place in the caller's buffer, the FIRST of its columns that is multiplied, and
   GROUP: how many neighbouring k a lane takes for its own, which is what its vector loads of A bring (stream.cuh). */
struct Qkv {
  static constexpr int K = D, N = QKV, FIRST = 0, OFFSET = W_QKV, GROUP = 4;
};
// All that sequences of one token need of it
struct Values {
  static constexpr int K = D, N = QKV, FIRST = 2 * D, OFFSET = W_QKV, GROUP = 4;
};
// And prepared, its product with the attention projection's weights (merge.cuh)
struct Merged {
  static constexpr int K = D, N = D, FIRST = 0, GROUP = 4;
};
struct Attn {
  static constexpr int K = D, N = D, FIRST = 0, OFFSET = W_ATTN, GROUP = 16;
};
struct Fc {
  static constexpr int K = D, N = FFN, FIRST = 0, OFFSET = W_FC, GROUP = 4;
};
struct Proj {
  static constexpr int K = FFN, N = D, FIRST = 0, OFFSET = W_PROJ, GROUP = 8;
};

constexpr int MOST_PARTS = 6;

/* The part of matrix M that a block takes: ROWS x WIDTH, K / ROWS splits of one column range lying next to each other
 * in the numbering. */
template <class M, int ROWS_, int WIDTH_, int PARTS_>
struct Slice {
  using Matrix = M;
  static constexpr int ROWS = ROWS_, WIDTH = WIDTH_, TILES = WIDTH / 8, SPLITS = M::K / ROWS;
  static constexpr int COUNT = (M::N - M::FIRST) / WIDTH * SPLITS;
  static constexpr int PARTS = PARTS_, PART_ROWS = ROWS / PARTS;  // runs of rows, in which it comes (pace.cuh)
  static_assert(PARTS <= MOST_PARTS && ROWS % PARTS == 0 && PART_ROWS % (4 * M::GROUP) == 0);
  static __device__ __forceinline__ int split(int slice) { return slice % SPLITS; }
  static __device__ __forceinline__ int row(int slice) { return slice % SPLITS * ROWS; }
  static __device__ __forceinline__ int column(int slice) { return M::FIRST + slice / SPLITS * WIDTH; }
};

/* The cuts for up to ROWS rows. The two blocks of a cluster have the halves of proj's K. Up to 8 rows each block
   reads all other activations for itself, and an MMA's other eight rows take what fp16 leaves of a LayerNorm's
   output. Above, work is divided so that they stay few, at the price of more exchanges. Up to 16, the blocks of a
   cluster are PAIRED in what comes before, too: each normalises eight rows for both and has the heads of half of the
   attention projection's K. Beyond, that is SPLIT further, its sums meeting in the workspace, and a row is
   normalised once and sent round. SINGLE: sequences of one token, which need no attention. */
template <int ROWS, class W, bool SINGLE>
struct Cut {
  using Weights = W;
  static constexpr int MT = ROWS > 16 ? 2 : 1, HALVES = ROWS > 8 ? 2 : 1;  // tiles of 16 rows; halves of one
  static constexpr bool FP32 = W::FP32, WATCHED = W::WATCHED, IN_FP32 = FP32 && !WATCHED;
  static constexpr bool SPLIT = ROWS > 16, PAIRED = ROWS == 16, MERGED = SINGLE && !FP32;
  static_assert(!SINGLE || !SPLIT || MERGED);
  static constexpr int PASSES = MERGED && SPLIT ? MAX_SINGLES / (16 * MT) : 1;  // over 16 MT rows
  // How slices come (pace.cuh): in parts of 6 to 16 KB, so many ahead
  static constexpr int WIDE = 6, NARROW = FP32 ? 3 : 1, AHEAD = SPLIT ? 2 : IN_FP32 || (FP32 && PAIRED) ? 3 : 4;
  static constexpr int UNROLL = SPLIT ? 1 : MOST_PARTS;
  using OneToken = Slice<std::conditional_t<FP32, Values, Merged>, D, 8, NARROW>;
  using Qkv = std::conditional_t<SINGLE, OneToken, Slice<small::Qkv, D, COLS, WIDE>>;
  using Attn = Slice<small::Attn, SPLIT ? D / 4 : PAIRED ? D / 2 : D, SPLIT ? COLS : PAIRED ? PAIR_COLS : 8, NARROW>;
  using Fc = Slice<small::Fc, D, COLS, WIDE>;
  using Proj = Slice<small::Proj, FFN / 2, PAIR_COLS, WIDE>;
};

/* Activations lie in blocks of 64 bytes of neighbouring features, the rows of a block one behind the other: what a warp
   reads in one go for the A of a product, eight rows by four lanes, is then 512 bytes in a run. (V is read by eight
   lanes to a row: 128.) */
template <class T, int K, int BYTES = 64, int ROWS = MAX_SINGLES>
struct Blocked {
  static constexpr int WIDTH = BYTES / sizeof(T), BLOCKS = K / WIDTH, MOST = ROWS;
  T block[BLOCKS][ROWS][WIDTH];
  __device__ __forceinline__ T* at(int row, int k) { return &block[k / WIDTH][row][k % WIDTH]; }
  __device__ __forceinline__ const T* at(int row, int k) const { return &block[k / WIDTH][row][k % WIDTH]; }
};

/* Activations on their way from one phase to the next, twice: a launch works in one copy and clears the other. */
struct Exchange {
  Blocked<__half, 2 * D, 64, MAX_ROWS> qk;
  Blocked<__half, D, 128, MAX_ROWS> v;  // a head to a block
  Blocked<float, D> x1;
  Blocked<__half, D> h[2];  // LN1's and LN2's output, above 16 rows
  Blocked<__half, FFN> f;
  float attn_sums[4][MAX_ROWS][D];
  // Of products in fp32
  Blocked<float, QKV, 64, FP32_ROWS> exact_qkv;
  Blocked<float, FFN, 64, FP32_ROWS> exact_f;
};

/* A block's own memory from launch to launch. */
struct alignas(16) Epoch {
  uint32_t launches;    // how many it has seen; the parity picks the copy
  uint32_t watched;     // how many of them looked at their weights; the parity picks the set of alarms
  uint32_t rows, form;  // of the last one: what is to be cleared
};

enum Form { SPLIT = 1, IN_FP32 = 2, MERGED = 4 };
template <class C>
__host__ __device__ constexpr uint32_t form_of() {
  return (C::SPLIT ? SPLIT : 0) | (C::IN_FP32 ? IN_FP32 : 0) | (C::MERGED ? MERGED : 0);
}

struct Workspace {
  Epoch epoch[MAX_GRID];
  Exchange copy[2];
};

/* Named barriers of a block; 0 is __syncthreads(). */
enum Barrier {
  COMPUTING = 1,  // the warps that compute
  READY,          // the producer has set up what arrives at shared memory
  ASKED,          // LN1's input has been asked for: weights may be
  PROJ,           // W_proj may be asked for (producer.cuh)
};

/* The vectors among the parameters, in fp32. beta follows gamma. */
struct Vectors {
  const float *norm1, *b_qkv, *b_attn, *norm2, *b_fc, *b_proj;
};

}  // namespace small
