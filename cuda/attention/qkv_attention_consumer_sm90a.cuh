/* A consumer warpgroup of QKV and attention in one kernel. How long the keys of the other blocks are it hears only when it has its second tile's scores: to
   wait for that at the start, as attention by itself does, takes 0.6 to 1.1 us more at 1024 rows (H200). So the first tile's scores are looked at, and nothing is
   subtracted from them if they are small. */
#pragma once
#include "attention/attention_consumer_sm90a.cuh"
#include "attention/qkv_attention_tile_sm90a.cuh"
#include "gemm/longest_rows_sm90a.cuh"

// The largest square of 16 rows of 64 halves, by a warp, two lanes a row
__device__ __forceinline__ float longest_of_16(uint32_t rows, int lane) {
  const float half = half_row_squares<64>(rows, lane / 2, lane % 2 * 4);
  return warp_largest(half + __shfl_xor_sync(~0u, half, 1));
}

struct QkvAttentionConsumer : AttentionConsumer<QkvAttentionTile> {
  using T = QkvAttentionTile;
  float q_squares;  // of the warp's longest query
  bool tame;        // whether the warp's scores so far are small, and behind the second tile whether all of the warpgroup's are

  __device__ __forceinline__ QkvAttentionConsumer(const AttentionSmem<T>& smem, const AttentionWork& work, int group, int warp)
      : AttentionConsumer(smem, work, group, warp) {}

  // Before the exponentials of the first tile
  __device__ __forceinline__ void look_at_first() {
    float top[2];
    bool small = true;
    softmax.largest(s, top);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      top[h] = quad_max(top[h]);
      small &= (top[h] >= -P_SHIFT && top[h] <= TAME) || top[h] == -INFINITY;
    }
    tame = __all_sync(~0u, small);
#pragma unroll
    for (int h = 0; h < 2; h++) softmax.reference[h] = tame ? 0 : fmaxf(NO_SCORE, top[h] - P_SHIFT);
  }

  // Behind the second tile's scores, under the first O += P V, behind which no product of the warpgroup reads Q any more
  __device__ __forceinline__ bool judge() {
    const int barrier = 1 + T::CONSUMERS + group;
    mbarrier_wait_or_fault(smem.measured(), 0);
    const float keys = load_shared(smem.squares(lane() % T::SQUARES));
    const bool all_small = named_barrier_all(barrier, 128, tame && q_squares * keys <= TAME_SQUARES);
    if (all_small) {
      scale_rows();
      meet_scaled();
    }
    return all_small;
  }

  // A tile comes whose scores may be far from 0. Rows that have seen no key yet have no reference.
  __device__ __forceinline__ void grow_wild() {
    tame = false;
#pragma unroll
    for (int h = 0; h < 2; h++) softmax.reference[h] = softmax.reference_of(h, quad_sum(softmax.sum[h]));
  }

  __device__ __forceinline__ void run() {
    bool begun = false;
    do {
      // The first tile, the second one, and those of which the largest score is looked for. One piece of code, because most of it runs but once, and cold.
      if (!begun) {
        load_q();
        begin();
        q_squares = longest_of_16(rows_smem() + 2048 * warp, lane());  // under the first products
        wgmma_wait<0>();
        mask(first_key(tile));
        look_at_first();
      } else {
        const bool second = tile == first();
        begin_step(!second);
        if (second && !judge()) grow_wild();
        if (!tame) look();
      }
      softmax.template exponentials<true, true>(s);
      wgmma_wait<0>();
      pack();
      if (begun) {
        release(now.stage);
        now = next;
        while (tame && more()) {
          begin_step(true);
          softmax.template exponentials<false, false>(s);
          end_step();
        }
      }
      begun = true;
    } while (more());
    end();
  }
};
