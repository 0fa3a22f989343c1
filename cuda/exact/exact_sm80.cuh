/* The exact block's tiles on sm_80, and the shared memory that they take. */
#pragma once

#include "common/sm80.cuh"
#include "exact/portable.cuh"

struct ExactSm80 : Sm80 {
  //                     BM  BN   BK WM WN WK stages
  using Large = GemmTile<64, 128, 32, 2, 2, 2, 3>;
  using Few = GemmTile<16, 32, 128, 1, 1, 8, 3>;
  static constexpr int FEW_FOR_LARGE = 3, FEW_FOR_LONG = 4;  // measured on an H200
  static constexpr int KEYS = 64;
};

constexpr int EXACT_SHARED = ExactShared<ExactSm80>::BYTES;
static_assert(EXACT_SHARED <= 96 * 1024);  // sm_86 and sm_89 have 99 KB
