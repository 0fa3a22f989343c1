/* Words that blocks leave for each other in device memory: two floats in 8 bytes, written and read as one (PTX ISA 9.0,
   8.10.3: a 64-bit access is single). A word starts as EMPTY, two NaNs with a payload that no computation gives. */
#pragma once
#include "common/alarm.cuh"
#include "common/bound.cuh"

constexpr unsigned long long EMPTY = ~0ull;
constexpr unsigned PATIENCE = 4096;  // looks of about 0.7 us

// 9.7.9.11 st
__device__ __forceinline__ void publish_statistics(unsigned long long* to, float mean, float spread) {
  const unsigned long long word = static_cast<unsigned long long>(__float_as_uint(spread)) << 32 | __float_as_uint(mean);
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}

// 9.7.9.8 ld, until none of the COUNT words of any of ROWS rows, `pitch` words apart, is empty. All are asked for at
// once: a trip through L2 is half a microsecond. A neighbour that does not come for milliseconds may have no place until
// this block has left: a cooperative grid of another stream that waits for its turn keeps it out (seen at 100 rows and more).
// Where there are alarms the call is then computed again, as for weights that fp16 cannot hold, and nothing here matters.
// Else the launch is cooperative, a neighbour that never comes is a bug, and traps after minutes.
template <int ROWS, int COUNT>
__device__ __forceinline__ void await_statistics(const unsigned long long* from, int pitch,
                                                 float2 (&statistics)[ROWS][COUNT], unsigned* alarms) {
  unsigned tries = 0;
  bool empty;
  do {
    empty = false;
#pragma unroll
    for (int i = 0; i < ROWS * COUNT; i++) {
      unsigned long long word;
      asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(from + i / COUNT * pitch + i % COUNT) : "memory");
      empty |= word == EMPTY;
      statistics[i / COUNT][i % COUNT] =
          make_float2(__uint_as_float(static_cast<unsigned>(word)), __uint_as_float(static_cast<unsigned>(word >> 32)));
    }
    if (++tries > PATIENCE && empty && alarms != nullptr) {
      atomicMax(alarms + ALARM_LARGEST + MATRIX_ATTN, __float_as_uint(INFINITY));
      return;
    }
    if (tries > MOST_TRIES) __trap();
  } while (empty);
}
