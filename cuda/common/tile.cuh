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

// Deals the 16-byte chunks of a tile to THREADS threads: visit(round, row, column) for each chunk of `thread`.
template <class T, int THREADS>
struct Chunks {
  static constexpr int PER_ROW = T::COLS / 8;
  static constexpr int TOTAL = T::ROWS * PER_ROW;
  static constexpr int ROUNDS = (TOTAL + THREADS - 1) / THREADS;

  template <class Visit>
  static __device__ void each(int thread, Visit visit) {
#pragma unroll
    for (int round = 0; round < ROUNDS; ++round) {
      const int chunk = thread + round * THREADS;
      if (TOTAL % THREADS == 0 || chunk < TOTAL) visit(round, chunk / PER_ROW, chunk % PER_ROW * 8);
    }
  }
};
