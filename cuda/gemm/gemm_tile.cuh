/* How a block of the GEMM divides its work, and its shared memory. */
#pragma once

#include "common/tile.cuh"

// A block of WM x WN x WK warps owns BM x BN of the output and walks K in steps of BK through STAGES buffers. The WK
// slices share out the 16-deep steps inside a buffer; their sums are added at the end.
template <int BM_, int BN_, int BK_, int WM_, int WN_, int WK_, int STAGES_>
struct GemmTile {
  static constexpr int BM = BM_, BN = BN_, BK = BK_, WM = WM_, WN = WN_, WK = WK_, STAGES = STAGES_;
  static constexpr int THREADS = 32 * WM * WN * WK;
  static constexpr int WARP_ROWS = BM / WM;
  static constexpr int WARP_COLUMNS = BN / WN;
  static constexpr int ROW_TILES = WARP_ROWS / 16;  // accumulators of 16 x 8 in one warp
  static constexpr int COLUMN_TILES = WARP_COLUMNS / 8;
  using A = Tile<BM, BK>;
  using B = Tile<BK, BN>;
  static_assert(STAGES >= 2 && BM % (16 * WM) == 0 && BN % (16 * WN) == 0 && BK % (16 * WK) == 0);

  // This thread's place: its warp's rows and columns in the tile, and the slice of K.
  static __device__ int lane() { return threadIdx.x % 32; }
  static __device__ int slice() { return threadIdx.x / 32 / (WM * WN); }
  static __device__ int warp_row() { return threadIdx.x / 32 / WN % WM * WARP_ROWS; }
  static __device__ int warp_column() { return threadIdx.x / 32 % WN * WARP_COLUMNS; }
};

constexpr int max_of(int a, int b) { return a > b ? a : b; }

// The stages, whose memory later holds the slices' sums or the fp16 result on its way out; then the bias.
template <class Arch, class G>
struct GemmShared {
  static constexpr int STAGES = Arch::stages(G::STAGES);
  static constexpr int STAGE = G::A::SIZE + G::B::SIZE;  // halves
  static constexpr int SUM_PITCH = G::BN + 8;            // floats
  static constexpr int SUMS_BYTES = G::WK == 1 ? 0 : G::WK * G::BM * SUM_PITCH * 4;
  static constexpr int SCRATCH = Tile<G::WARP_ROWS, G::WARP_COLUMNS>::SIZE;  // halves a warp
  static constexpr int SCRATCH_BYTES = G::WK == 1 ? G::WM * G::WN * SCRATCH * 2 : 0;
  static constexpr int BIAS_AT = max_of(STAGES * STAGE * 2, max_of(SUMS_BYTES, SCRATCH_BYTES));
  static constexpr int BYTES = BIAS_AT + G::BN * 4;
};
