/* One consumer warpgroup of the Hopper attention: 64 query rows against its share of the tiles of keys.

   S(i + 1) = Q K^T is issued before O += P(i) V; the look for the largest score of tile i + 1 runs under the latter, its exponentials under the products of
   the other row groups, which take turns at issuing. Nothing is in flight across the loop's edge: ptxas serialises what is. */
#pragma once
#include "attention/attention_tile_sm90a.cuh"
#include "attention/softmax_sm90a.cuh"
#include "common/fragment_sm90a.cuh"
#include "common/sync_sm90a.cuh"
#include "common/wgmma_sm90a.cuh"

template <class T>
struct AttentionConsumer {
  const AttentionSmem<T>& smem;
  const AttentionWork& work;
  const int group, warp, lane;  // warpgroup of the block, warp of the warpgroup
  const int row_group, key_group;
  const int row;                // first query of the warpgroup
  const int visible;            // all of its rows see the keys below
  uint32_t q[4][4];
  float s[T::KEYS / 2];
  uint32_t p[T::KEYS / 16][4];
  float o[32];
  OnlineSoftmax<T::KEYS / 2> softmax;

  __device__ __forceinline__ AttentionConsumer(const AttentionSmem<T>& smem, const AttentionWork& work, int group, int warp, int lane)
      : smem(smem), work(work), group(group), warp(warp), lane(lane), row_group(T::KEY_GROUPS > 1 ? 0 : group), key_group(T::KEY_GROUPS > 1 ? group : 0),
        row(work.row + 64 * row_group), visible(T::CAUSAL ? min(work.seq_len, row + 1) : work.seq_len) {}

  __device__ __forceinline__ uint32_t rows_smem() const { return smem.q() + row_group * 8192; }

  __device__ __forceinline__ void load_q() {
    wait_for(smem.q_full(), 0);
    if (!T::Q_REGISTERS) return;
    const int r = 16 * warp + (lane & 15);
#pragma unroll
    for (int k = 0; k < 4; k++) ldmatrix_x4(rows_smem() + swizzle_128(r, 2 * k + (lane >> 4)), q[k]);
  }

  // S = Q K^T
  __device__ __forceinline__ void issue_scores(int stage) {
    constexpr uint64_t K_MAJOR = wgmma_descriptor<128>(16, 1024);
    const uint64_t k = wgmma_at(K_MAJOR, smem.k(stage)), q_rows = wgmma_at(K_MAJOR, rows_smem());
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++) {
      if (T::Q_REGISTERS)
        Wgmma<T::KEYS>::template rs<0>(s, q[i], k + i * 2, i != 0);
      else
        Wgmma<T::KEYS>::template ss<0>(s, q_rows + i * 2, k + i * 2, i != 0);
    }
    wgmma_commit();
  }

  // O += P V
  __device__ __forceinline__ void issue_output(int stage, bool accumulate) {
    constexpr uint64_t N_MAJOR = wgmma_descriptor<128>(8192, 1024);
    const uint64_t v = wgmma_at(N_MAJOR, smem.v(stage));
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < T::KEYS / 16; i++) Wgmma<64>::rs<1>(o, p[i], v + i * 128, i != 0 || accumulate);
    wgmma_commit();
  }

  // Keys past the end of the sequence, and in the causal case past the row, get no weight.
  __device__ __forceinline__ void mask(int key) {
    if (key + T::KEYS <= visible) return;
    const int mine = row + 16 * warp + (lane >> 2), left = 2 * (lane & 3) + key;
    const int end0 = (T::CAUSAL ? min(work.seq_len, mine + 1) : work.seq_len) - left;
    const int end1 = (T::CAUSAL ? min(work.seq_len, mine + 9) : work.seq_len) - left;
#pragma unroll
    for (int i = 0; i < T::KEYS / 2; i++)
      if (8 * (i >> 2) + (i & 1) >= ((i & 2) ? end1 : end0)) s[i] = -INFINITY;
  }

  // From complete scores to P. What was issued behind the scores has ended when it returns.
  __device__ __forceinline__ void scores_to_p() {
    float top[2];
    softmax.largest(s, top);
    if (!softmax.calm(top)) {
      float rescale[2];
      softmax.settle(s, top, rescale);
      wgmma_wait<0>();
#pragma unroll
      for (int i = 0; i < 32; i++) o[i] *= rescale[(i >> 1) & 1];
    }
    wgmma_wait<0>();
    softmax.exponentials(s);
#pragma unroll
    for (int i = 0; i < T::KEYS / 16; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) p[i][j] = pack_half2(s[8 * i + 2 * j], s[8 * i + 2 * j + 1]);
  }

  __device__ __forceinline__ void release(int stage) {
    if (lane == 0) mbarrier_arrive(smem.empty(stage));
  }
  __device__ __forceinline__ void take_turn() {
    if (T::PING_PONG) named_barrier_sync(1 + group, 256);
  }
  __device__ __forceinline__ void pass_turn() {
    if (T::PING_PONG) named_barrier_arrive(1 + (group + 1) % T::CONSUMERS, 256);
  }

  __device__ __forceinline__ void run() {
    Ring<T::STAGES> now;
    int tile = work.tiles - 1 - key_group;
    if (key_group > 0) now.advance();
    load_q();
    wait_for(smem.k_full(now.stage), now.parity);
    issue_scores(now.stage);
    if (T::PING_PONG && group == T::CONSUMERS - 1) pass_turn();
    wgmma_wait<0>();
    mask(tile * T::KEYS);
    scores_to_p();
    bool accumulate = false;
    for (; tile >= T::KEY_GROUPS; tile -= T::KEY_GROUPS) {
      Ring<T::STAGES> next = now;
#pragma unroll
      for (int i = 0; i < T::KEY_GROUPS; i++) next.advance();
      wait_for(smem.k_full(next.stage), next.parity);
      take_turn();
      issue_scores(next.stage);
      wait_for(smem.v_full(now.stage), now.parity);
      issue_output(now.stage, accumulate);
      pass_turn();
      wgmma_wait<1>();
      if (T::MASK_EVERY_TILE) mask((tile - T::KEY_GROUPS) * T::KEYS);
      scores_to_p();
      release(now.stage);
      now = next;
      accumulate = true;
    }
    if (T::PING_PONG && group == 0) take_turn();
    wait_for(smem.v_full(now.stage), now.parity);
    issue_output(now.stage, accumulate);
    wgmma_wait<0>();
  }
};
