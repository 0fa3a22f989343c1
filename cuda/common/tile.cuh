/* A tile of fp16 in shared memory, and which thread copies which part of it.

   Each row is padded by 16 bytes. COLS / 8 is even, so a row takes an odd number of 16-byte words: the eight rows that
   one phase of ldmatrix reads then lie in eight different bank groups, and fragment addresses stay base + constant. */
#pragma once

#include <cuda_fp16.h>

template <int ROWS_, int COLS_>
struct Tile {
  static constexpr int ROWS = ROWS_;
  static constexpr int COLS = COLS_;
  static constexpr int PITCH = COLS + 8;     // halves from one row to the next
  static constexpr int SIZE = ROWS * PITCH;  // halves
  static_assert(COLS % 16 == 0, "an odd number of 16-byte words a row");
};

// Deals the 16-byte chunks of a tile to THREADS threads. LANES neighbours take neighbouring chunks of a row, and a
// thread's chunks lie a constant distance apart, so that one address and constants reach them all.
template <class T, int THREADS>
struct Chunks {
  static constexpr int PER_ROW = T::COLS / 8;
  static constexpr int LANES = PER_ROW % 8 == 0 ? 8 : PER_ROW % 4 == 0 ? 4 : 2;
  static constexpr int ROW_STEP = THREADS / LANES;
  static constexpr int ROW_ROUNDS = (T::ROWS + ROW_STEP - 1) / ROW_STEP;
  static constexpr int COLUMN_ROUNDS = PER_ROW / LANES;
  static constexpr int ROUNDS = ROW_ROUNDS * COLUMN_ROUNDS;

  static __device__ int row(int thread) { return thread / LANES; }
  static __device__ int column(int thread) { return thread % LANES * 8; }

  // visit(round, row, column) for each chunk of `thread`, row and column counted from its first one.
  template <class Visit>
  static __device__ void each(int thread, Visit visit) {
#pragma unroll
    for (int i = 0; i < ROW_ROUNDS; ++i)
#pragma unroll
      for (int j = 0; j < COLUMN_ROUNDS; ++j)
        if (T::ROWS % ROW_STEP == 0 || row(thread) < T::ROWS - i * ROW_STEP)
          visit(i * COLUMN_ROUNDS + j, i * ROW_STEP, j * LANES * 8);
  }
};
