/* Tiles from global to shared memory through registers, for sm_75, which has no cp.async: `fetch` loads, the caller
   computes on another tile meanwhile, `land` stores. The barrier that the caller needs anyway makes the tile visible.
 */
#pragma once

#include <climits>

#include "common/tile.cuh"

struct CopySm75 {
  template <class T, int THREADS>
  struct Copy {
    uint4 staged[Chunks<T, THREADS>::ROUNDS];

    // Starts the copy of a tile whose first row is `source`; rows past `last` repeat row `last`.
    __device__ void fetch(__half*, const __half* source, int pitch, int thread, int last = INT_MAX) {
      Chunks<T, THREADS>::each(thread, [&](int round, int row, int column) {
        staged[round] = *reinterpret_cast<const uint4*>(source + static_cast<size_t>(min(row, last)) * pitch + column);
      });
    }
    // Finishes it: writes the tile.
    __device__ void land(__half* tile, int thread) {
      Chunks<T, THREADS>::each(thread, [&](int round, int row, int column) {
        *reinterpret_cast<uint4*>(tile + row * T::PITCH + column) = staged[round];
      });
    }
  };

  static __device__ void commit() {}

  template <int IN_FLIGHT>
  static __device__ void wait() {}
};
