/* Tiles from global to shared memory by cp.async, past the registers. PTX ISA 9.0, section 9.7.9.25.3, "cp.async"
   (sm_80). A tile is fetched, its group committed, and later waited for: `wait<N>` leaves the newest N groups in
   flight. */
#pragma once

#include <climits>

#include "common/ldmatrix.cuh"

struct CopySm80 {
  template <class T, int THREADS>
  struct Copy {
    // Starts the copy of a tile whose first row is `source`; rows past `last` repeat row `last`.
    __device__ void fetch(__half* tile, const __half* source, int pitch, int thread, int last = INT_MAX) {
      Chunks<T, THREADS>::each(thread, [&](int, int row, int column) {
        const __half* from = source + static_cast<size_t>(min(row, last)) * pitch + column;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(tile + row * T::PITCH + column)),
                     "l"(from)
                     : "memory");
      });
    }
    // Finishes it: nothing, the data is on its way.
    __device__ void land(__half*, int) {}
  };

  static __device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

  template <int IN_FLIGHT>
  static __device__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(IN_FLIGHT) : "memory");
  }
};
