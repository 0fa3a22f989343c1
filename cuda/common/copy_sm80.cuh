/* Tiles from global to shared memory by cp.async, past the registers. PTX ISA 9.0, sections 9.7.9.25.3.1 to .3,
   "cp.async" (sm_80). A tile is fetched, its group committed, and later waited for: `wait<N>` leaves the newest N groups in
   flight. */
#pragma once

#include "common/address.cuh"
#include "common/tile.cuh"

struct CopySm80 {
  // Tiles of type T whose rows lie PITCH halves apart in global memory, copied by THREADS threads.
  template <class T, int PITCH, int THREADS>
  struct Copy {
    using C = Chunks<T, THREADS>;

    // Starts the copy of the tile at `source`.
    __device__ void fetch(__half* tile, const __half* source, int thread) {
      each(tile, source, thread, [](unsigned to, const __half* from, int) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
      });
    }
    // The same for a tile of which only the first `rows` rows exist; the others become zero.
    __device__ void fetch(__half* tile, const __half* source, int thread, int rows) {
      rows -= C::row(thread);
      each(tile, source, thread, [rows](unsigned to, const __half* from, int row) {
        const int size = row < rows ? 16 : 0;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(size) : "memory");
      });
    }
    // Finishes it: nothing, the data is on its way.
    __device__ void land(__half*, int) {}

   private:
    template <class Start>
    static __device__ void each(__half* tile, const __half* source, int thread, Start start) {
      const unsigned to = shared_address(tile + C::row(thread) * T::PITCH + C::column(thread));
      const __half* from = source + C::row(thread) * PITCH + C::column(thread);
      C::each(thread, [&](int, int row, int column) {
        start(to + 2 * (row * T::PITCH + column), from + row * PITCH + column, row);
      });
    }
  };

  static __device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

  template <int IN_FLIGHT>
  static __device__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(IN_FLIGHT) : "memory");
  }
};
