/* Which columns of the QKV product a tile of 144 has, whose weights lie transposed in its order: 128 neighbours, a pair
   of heads, and 16 of the last 256. So all that it stores is whole lines of 128 bytes, and whole sectors of 32. */
#pragma once
#include "dims.h"

constexpr int TRANSPOSED_WIDE = 128, TRANSPOSED_NARROW = 16, TRANSPOSED_TILES = QKV / (TRANSPOSED_WIDE + TRANSPOSED_NARROW);

// The row of the transposed weights that column n is
__host__ __device__ constexpr int transposed_row(int n) {
  constexpr int WIDE = TRANSPOSED_WIDE, NARROW = TRANSPOSED_NARROW, REST = TRANSPOSED_TILES * WIDE;
  return n < REST ? n / WIDE * (WIDE + NARROW) + n % WIDE : (n - REST) / NARROW * (WIDE + NARROW) + WIDE + (n - REST) % NARROW;
}
