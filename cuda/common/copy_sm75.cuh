/* Tiles from global to shared memory through registers, for sm_75, which has no cp.async: `fetch` loads, the caller
   computes on another tile meanwhile, `land` stores. The barrier that the caller needs anyway makes the tile visible.
 */
#pragma once

#include "common/tile.cuh"

struct CopySm75 {
  // Tiles of type T whose rows lie PITCH halves apart in global memory, copied by THREADS threads.
  template <class T, int PITCH, int THREADS>
  struct Copy {
    using C = Chunks<T, THREADS>;
    uint4 staged[C::ROUNDS];

    // Starts the copy of the tile at `source`.
    __device__ void fetch(__half* tile, const __half* source, int thread) { fetch(tile, source, thread, T::ROWS); }

    // The same for a tile of which only the first `rows` rows exist; the others become zero.
    __device__ void fetch(__half*, const __half* source, int thread, int rows) {
      const __half* from = source + C::row(thread) * PITCH + C::column(thread);
      rows -= C::row(thread);
      C::each(thread, [&](int round, int row, int column) {
        staged[round] = row < rows ? *reinterpret_cast<const uint4*>(from + row * PITCH + column) : uint4{};
      });
    }
    // Finishes it: writes the tile.
    __device__ void land(__half* tile, int thread) {
      __half* to = tile + C::row(thread) * T::PITCH + C::column(thread);
      C::each(thread, [&](int round, int row, int column) {
        *reinterpret_cast<uint4*>(to + row * T::PITCH + column) = staged[round];
      });
    }
  };

  static __device__ void commit() {}

  template <int IN_FLIGHT>
  static __device__ void wait() {}
};
