/* How large scores can be, before they are there: |q k| <= |q| |k|. QKV leaves the squares of its longest keys; attention looks at its own queries, in
   shared memory, under its first products. */
#pragma once
#include "attention/attention_tile_sm90a.cuh"
#include "attention/softmax_sm90a.cuh"
#include "common/fragment_sm90a.cuh"
#include "common/sync_sm90a.cuh"
#include "gemm/key_lengths_sm90a.cuh"

// Where the squares of the longest query and of the longest key have a product of at most this, no score is beyond +-TAME: each is good to 1 %.
constexpr float TAME_SQUARES = 0.98f * TAME * TAME;

// The largest square of 16 rows of 64 halves, by a warp, two lanes a row
__device__ __forceinline__ float longest_of_16(uint32_t rows, int lane) {
  const float half = half_row_squares<64>(rows, lane / 2, lane % 2 * 4);
  return warp_largest(half + __shfl_xor_sync(~0u, half, 1));
}

// At most the square of the longest of the keys `first` .. `end` - 1 of all sequences, by a warp
__device__ __forceinline__ float longest_key(const float2* lengths, int head, int first, int end) {
  float2 longest = {0, 0};
  int group = first / KEY_ROWS / 32 * 32 + threadIdx.x % 32;
  lengths += key_lengths_at(group, head);
#pragma unroll 4
  for (int rest = end - group / 32 * (32 * KEY_ROWS); rest > 0; rest -= 32 * KEY_ROWS, group += 32, lengths += 32 * HEADS) {
    const float2 halves = __ldcg(lengths);
    if (group * KEY_ROWS + KEY_ROWS > first && group * KEY_ROWS < end) longest = {larger(longest.x, halves.x), larger(longest.y, halves.y)};
  }
  return warp_largest(longest.x) + warp_largest(longest.y);
}

/* A block's warp that has nothing else to do: of the keys of each stream those behind the first tile, whose scores are looked at themselves. So rows
   of which QKV says nothing, because they are no whole tile, do not matter: they come first. */
template <class T>
__device__ __forceinline__ void measure_keys(const AttentionSmem<T>& smem, const AttentionWork& work, const float2* lengths) {
  const int row = work.sequence * work.seq_len;
  pdl_wait();
  for (int i = 0; i < work.streams; i++) {
    int head = work.head + i, from = row;
    if (head >= HEADS) head -= HEADS, from += work.seq_len;
    const int end = from + (work.tiles - 1) * T::KEYS;
    const float squares = longest_key(lengths, head, from + (T::BLOCKS > 1 ? work.first * T::KEYS : 0), end);
    if (elect_one()) store_shared(smem.key_squares(i), squares);
  }
  if (elect_one()) mbarrier_arrive(smem.measured());
}
