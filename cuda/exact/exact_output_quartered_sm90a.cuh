/* The last stage of exact_quartered_sm90a.cu: exact_output_sm90a.cuh, but each warpgroup meets its like of the other three blocks
   as soon as it has its own sums, the first one while the second one still multiplies. */
#pragma once

#include "exact/exact_output_sm90a.cuh"

namespace exact90 {

// A word of a tile has a bit for each warpgroup of its four blocks, which the warpgroup turns over. Those of the same rows are alike
// before and after.
struct TileMeeting {
  static constexpr bool BY_WARPGROUP = true, BEHIND_LOOP = true;  // over stages
  unsigned *word, bit, all, before = 0;

  __device__ __forceinline__ void leave() const {}
  __device__ __forceinline__ void miss() const {}
  // All stores of the warpgroup are seen by those that await() this.
  __device__ __forceinline__ void arrive(unsigned char* memory, int tile, int part) {
    const int thread = thread_index(), group = thread / 128;
    word = reinterpret_cast<unsigned*>(memory + AT_TILES) + tile;
    bit = 1u << (QUARTERS * group + part), all = ((1u << QUARTERS) - 1) << QUARTERS * group;
    named_barrier_sync(GROUP_BARRIER + group, 128);
    if (thread % 128 == 0)  // PTX ISA 9.0, 9.7.13.7
      asm volatile("atom.xor.release.gpu.global.b32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(bit) : "memory");
  }
  __device__ __forceinline__ void await() const {
    const int thread = thread_index();
    const unsigned after = before & bit ? 0 : all;
    if (thread % 128 == 0)
      for (unsigned polls = 0; (load_acquire(word) & all) != after;) bound<MOST_POLLS>(++polls);
    named_barrier_sync(GROUP_BARRIER + thread / 128, 128);
  }
};
static_assert(2 * QUARTERS <= 32, "bits of a word");

}  // namespace exact90
