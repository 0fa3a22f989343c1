/* The exact block's tiles on sm_75, and the shared memory that they take. */
#pragma once

#include "common/sm75.cuh"
#include "exact/portable.cuh"

struct ExactSm75 : Sm75 {
  //                     BM  BN   BK WM WN WK stages
  using Large = GemmTile<64, 64, 32, 2, 2, 2, 2>;
  using Few = GemmTile<16, 64, 64, 1, 2, 4, 2>;
  static constexpr int FEW_FOR_LARGE = 2, FEW_FOR_LONG = 2;  // measured on an H200
  static constexpr int KEYS = 32;
};

constexpr int EXACT_SHARED = ExactShared<ExactSm75>::BYTES;
static_assert(EXACT_SHARED <= 64 * 1024);
