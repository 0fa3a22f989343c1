/* A consumer warpgroup of QKV and attention in one kernel. How long the keys of the other blocks are it hears only when it is done with its first tile: to
   wait for that at the start, as attention by itself does, took 0.6 to 1.1 us more at 1024 rows (H200). So the first tile's scores are looked at.

   A turn is passed on in the midst of the exponentials. One warp's take 12 clocks each beside the other's products, those of two at once 10 (H200): the two
   warpgroups' should overlap, but not wholly, because then both would wait for their products, too. */
#pragma once
#include "attention/attention_consumer_sm90a.cuh"
#include "attention/qkv_attention_tile_sm90a.cuh"

struct QkvAttentionConsumer : AttentionConsumer<QkvAttentionTile> {
  using T = QkvAttentionTile;
  // Of a thread's 64 exponentials of a tile, so many come before the turn is passed on; between 8 and 32 the number made no difference (H200, 1024 rows).
  static constexpr int BEFORE_TURN = 20;

  __device__ __forceinline__ QkvAttentionConsumer(const AttentionSmem<T>& smem, const AttentionWork& work, int group, int warp)
      : AttentionConsumer(smem, work, group, warp) {}

  // The own tile's scores; the block has met since it was there
  __device__ __forceinline__ void begin_own() {
    issue_scores(0);
    next = after(now);
    if (group == T::CONSUMERS - 1) pass_turn();
  }

  // The first tile's scores are scaled, and if they are not small a reference is subtracted: then they are like a tame tile's for what comes behind. Returns
  // whether the warp's are small.
  __device__ __forceinline__ bool look_at_first() {
    float top[2];
    bool small = true;
    softmax.largest(s, top);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      top[h] = quad_max(top[h]);
      small &= (top[h] >= -P_SHIFT && top[h] <= TAME) || top[h] == -INFINITY;
    }
    const bool tame = __all_sync(~0u, small);
#pragma unroll
    for (int h = 0; h < 2; h++) softmax.reference[h] = tame ? 0 : fmaxf(NO_SCORE, top[h] - P_SHIFT);
    // Before they are scaled: of large scores a product would leave its rounding, beyond fp16.
    if (!tame) {
      asm volatile("");  // else the compiler makes it a subtraction of 0 that is always done (641 to 1024 rows up to +0.4 us, H200)
#pragma unroll
      for (int i = 0; i < T::KEYS / 2; i++) s[i] -= softmax.reference[(i >> 1) & 1];
    }
#pragma unroll
    for (int i = 0; i < T::KEYS / 2; i++) s[i] *= SCORE_SCALE;
    return tame;
  }

  // Behind the first tile, when no product reads Q as it is any more, nor who measures it: whether all of the warpgroup's scores are small; `tame`: whether the
  // warp's of the first tile are
  __device__ __forceinline__ bool judge(bool tame) const {
    cluster_wait_or_fault(smem.measured(), 0);
    const float keys = load_shared(smem.squares(lane() % T::KEY_SQUARES)), queries = load_shared(smem.squares(T::KEY_SQUARES + group));
    return named_barrier_all(1 + T::CONSUMERS + group, 128, tame && queries * keys <= TAME_SQUARES);
  }

  // A tile comes whose scores may be far from 0. Rows that have seen no key yet have no reference.
  __device__ __forceinline__ void grow_wild() {
#pragma unroll
    for (int h = 0; h < 2; h++) softmax.reference[h] = softmax.reference_of(h, quad_sum(softmax.sum[h]));
  }

  // Under the exponentials, behind those that made this sum
  __device__ __forceinline__ void pass_turn_behind(float sum) const { named_barrier_arrive_behind(sum, other_turn(), 256); }

  // The first tile, and all others if their scores are small. One piece of code, because code that runs for the first time is cold: 5 to 7 clocks an
  // instruction (H200).
  __device__ __forceinline__ void attend_tame() {
    bool begun = false, tame = false;
    do {
      if (begun) {
        begin_step<true>(tile != first());
      } else {
        begin_own();
        wgmma_wait<0>();
        mask(first_key(tile));
        tame = look_at_first();
      }
      softmax.template exponentials<false, false, false, 0, BEFORE_TURN>(s);
      if (begun) pass_turn_behind(softmax.sum[0]);
      softmax.template exponentials<false, false, false, BEFORE_TURN>(s);
      look_ahead();
      wgmma_wait<0>();
      pack();
      if (begun) {
        release(emptied);
      } else {
        if (!judge(tame)) return grow_wild();
        scale_rows();
        meet_scaled();
        begun = true;
      }
    } while (more());
  }

  __device__ __forceinline__ void run() {
    attend_tame();
    while (more()) {
      begin_step(tile != first());
      look();
      softmax.template exponentials<true, true>(s);
      end_step();
    }
    end();
  }
};
