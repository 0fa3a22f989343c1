/* One consumer warpgroup of the Hopper attention: 64 query rows against its share of the tiles of keys.

   S(i + 1) = Q K^T is issued before O += P(i) V; the exponentials of tile i + 1 run under that product (but of three row groups, whose products
   are enough, see AttentionTile::EARLY) and those of the other row groups, which take turns at issuing (without turns all drift into the same phase,
   and the tensor cores serve them in slices). Nothing is in flight across the loop's edge: ptxas serialises what is.

   Under its first products a warpgroup hears whether all of its scores are small. Then it goes on by code of its own, which does nothing but what it must. */
#pragma once
#include "attention/attention_tile_sm90a.cuh"
#include "attention/softmax_sm90a.cuh"
#include "common/fragment_sm90a.cuh"
#include "common/sync_sm90a.cuh"
#include "common/wgmma_sm90a.cuh"

template <class T>
struct AttentionConsumer {
  static constexpr bool ROUND = T::CAUSAL && T::LENGTHS;  // a row may have few keys
  static constexpr uint64_t K_MAJOR = wgmma_descriptor<128>(16, 1024), N_MAJOR = wgmma_descriptor<128>(8192, 1024);
  static constexpr uint32_t STAGE_UNITS = 2 * T::KV_BYTES / 16;  // as descriptors count
  const AttentionSmem<T>& smem;
  const AttentionWork& work;
  const int group, warp;  // warpgroup of the block, warp of the warpgroup
  const int row_group, key_group;
  const int row;      // first query of the warpgroup
  const int visible;  // all of its rows see the keys below
  uint32_t q_low, k_low;  // of the descriptors of Q and of the first stage's K: a tile's is one addition from its turn
  uint32_t q[4][4];
  float s[T::KEYS / 2];
  uint32_t p[T::KEYS / 16][4];
  float o[32];
  OnlineSoftmax<T::KEYS / 2> softmax;
  Ring<T::STAGES> now, next;  // where the tile lies that is multiplied by V next, and the one behind it
  int emptied;                // the stage that is free when the products on their way have ended
  int tile;                   // of keys, the last one of which there are scores
  bool ready = false;         // whether the next step's tiles are there; else not known
  float sums[2];              // of rows, when it is done

  __device__ __forceinline__ AttentionConsumer(const AttentionSmem<T>& smem, const AttentionWork& work, int group, int warp)
      : smem(smem), work(work), group(group), warp(warp), row_group(T::KEY_GROUPS > 1 ? 0 : group), key_group(T::KEY_GROUPS > 1 ? group : 0),
        row(work.row), visible(T::CAUSAL ? min(work.seq_len, row + 1) : work.seq_len) {
    if (key_group > 0) now.advance();
    if (T::BLOCKS > 1)
      for (int i = 0; i < work.stream; i++) now.advance();
    tile = first();
    q_low = static_cast<uint32_t>(wgmma_at(K_MAJOR, rows_smem()));
    k_low = static_cast<uint32_t>(wgmma_at(K_MAJOR, smem.k(0)));
    asm volatile("" : "+r"(q_low), "+r"(k_low));  // else they are worked out anew for each tile
  }

  // Read anew where it is wanted: no register is spent on it in the loop. PTX ISA 9.0, 10.3 %laneid
  static __device__ __forceinline__ int lane() {
    int lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
  }

  __device__ __forceinline__ uint32_t rows_smem() const { return smem.q() + row_group * 8192; }

  __device__ __forceinline__ void load_q(uint32_t parity) {
    mbarrier_wait_or_fault(smem.q_full(row_group), parity);
    if (!T::Q_REGISTERS) return;
    const int lane = this->lane(), r = 16 * warp + (lane & 15);
#pragma unroll
    for (int k = 0; k < 4; k++) ldmatrix_x4(rows_smem() + swizzle<128>(r, 2 * k + (lane >> 4)), q[k]);
  }

  // S = Q K^T
  __device__ __forceinline__ void issue_scores(int stage) {
    const uint64_t k = wgmma_with_low(K_MAJOR, k_low + stage * STAGE_UNITS), q_rows = wgmma_with_low(K_MAJOR, q_low);
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

  // O += P V. FROM_K: from the low word of K's descriptor to that of V's, which is N-major (the distance of slabs is in that word, too) and half a stage behind
  __device__ __forceinline__ void issue_output(int stage, bool accumulate) {
    constexpr uint32_t FROM_K = static_cast<uint32_t>(N_MAJOR - K_MAJOR) + STAGE_UNITS / 2;
    const uint64_t v = wgmma_with_low(N_MAJOR, k_low + stage * STAGE_UNITS + FROM_K);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < T::KEYS / 16; i++) Wgmma<64>::rs<1>(o, p[i], v + i * 128, i != 0 || accumulate);
    wgmma_commit();
  }

  // The first of a tile's keys
  __device__ __forceinline__ int first_key(int tile) const {
    if constexpr (T::OWN_FIRST) return (work.row / T::ROWS + work.tiles - 1 - tile) % work.tiles * T::KEYS;
    return (tile + (T::DEALT ? work.first : 0)) * T::KEYS;
  }

  // Keys past the end of the sequence, and in the causal case past the row, get no weight.
  __device__ __forceinline__ void mask(int key) {
    if (key + T::KEYS <= visible) return;
    const int lane = this->lane(), mine = row + 16 * warp + (lane >> 2), left = 2 * (lane & 3) + key;
    const int end0 = (T::CAUSAL ? min(work.seq_len, mine + 1) : work.seq_len) - left;
    const int end1 = (T::CAUSAL ? min(work.seq_len, mine + 9) : work.seq_len) - left;
#pragma unroll
    for (int i = 0; i < T::KEYS / 2; i++)
      if (8 * (i >> 2) + (i & 1) >= ((i & 2) ? end1 : end0)) s[i] = -INFINITY;
  }

  // Whether all of the warpgroup's scores are known to be small
  __device__ __forceinline__ bool judge() const {
    mbarrier_wait_or_fault(smem.measured(), 0);
    const bool small = load_shared(smem.squares(T::DEALT ? work.head : row_group)) <= TAME_SQUARES;
    return __any_sync(~0u, small);  // a vote, so that ptxas knows it to be the same for all lanes
  }

  /* Where scores are small, Q becomes log2(e) / 8 Q, so that p is 2^s without a multiplication. Where errors are magnified, with large scores, Q must keep what
     it was rounded to. */
  static __device__ __forceinline__ uint32_t scaled(uint32_t pair) {
    constexpr float HIGH = 0.1802978515625f;  // a half; alone it would be wrong by 2.2e-4, in all scores alike
    const __half2 high = __float2half2_rn(HIGH), low = __float2half2_rn(SCORE_SCALE - HIGH);
    const __half2 x = *reinterpret_cast<const __half2*>(&pair), y = __hfma2(x, low, __hmul2(x, high));
    return *reinterpret_cast<const uint32_t*>(&y);
  }
  // The warp's rows in shared memory, behind the last product of the warpgroup that reads them as they are
  __device__ __forceinline__ void scale_rows() const {
    const uint32_t rows = rows_smem() + 2048 * warp + 16 * lane();
#pragma unroll
    for (int i = 0; i < 4; i++) {
      uint32_t v[4];
      load_shared_words(rows + 512 * i, v);
#pragma unroll
      for (uint32_t& pair : v) pair = scaled(pair);
      store_shared_words(rows + 512 * i, v);
    }
  }
  // In front of the first product that reads them scaled
  __device__ __forceinline__ void meet_scaled() const {
    fence_async_shared();
    named_barrier_sync(1 + T::CONSUMERS + group, 128);
  }

  // Before a tile's exponentials: moves the references if these scores are too large for them.
  __device__ __forceinline__ void look() {
    if (!softmax.too_small(s)) return;
    float rescale[2];
    softmax.move(s, rescale);
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < 32; i++) o[i] *= rescale[(i >> 1) & 1];
  }

  __device__ __forceinline__ void pack() {
#pragma unroll
    for (int i = 0; i < T::KEYS / 16; i++)
#pragma unroll
      for (int j = 0; j < 4; j++) p[i][j] = pack_half2(s[8 * i + 2 * j], s[8 * i + 2 * j + 1]);
  }

  __device__ __forceinline__ void release(int stage) {
    if (!elect_one()) return;
    if (T::DEALT)
      mbarrier_arrive_as(smem.empty(stage), work.users);
    else
      mbarrier_arrive(smem.empty(stage));
  }
  __device__ __forceinline__ Ring<T::STAGES> after(Ring<T::STAGES> ring) const {
#pragma unroll
    for (int i = 0; i < T::KEY_GROUPS; i++) ring.advance();
    if ((T::BLOCKS > 1 || T::DEALT) && work.streams > 1) ring.advance();  // with more than two, a block has but one tile of each
    return ring;
  }
  __device__ __forceinline__ void take_turn() {
    if (T::PING_PONG) named_barrier_sync(1 + group, 256);
  }
  // The barrier at which the next one waits for its turn
  __device__ __forceinline__ int other_turn() const { return 1 + (group + 1) % T::CONSUMERS; }
  __device__ __forceinline__ void pass_turn() {
    if (T::PING_PONG) named_barrier_arrive(other_turn(), 256);
  }

  __device__ __forceinline__ int first() const { return work.tiles - 1 - key_group; }
  __device__ __forceinline__ bool more() const { return tile >= (T::BLOCKS > 1 ? work.first : 0) + T::KEY_GROUPS; }

  // The first tile's scores, but for the wait
  __device__ __forceinline__ void begin() {
    mbarrier_wait_or_fault(smem.k_full(now.stage), now.parity);
    issue_scores(now.stage);
    next = after(now);
    if (T::PING_PONG && group == T::CONSUMERS - 1) pass_turn();
  }

  // The scores of the next tile; those of the last one go on to O. The turn is passed on then, or LATER.
  template <bool LATER = false>
  __device__ __forceinline__ void begin_step(bool accumulate) {
    if (!ready) mbarrier_wait_or_fault(smem.k_full(next.stage), next.parity);
    take_turn();
    issue_scores(next.stage);
    if (!ready) mbarrier_wait_or_fault(smem.v_full(now.stage), now.parity);
    issue_output(now.stage, accumulate);
    if (!LATER) pass_turn();
    emptied = now.stage;
    now = next;
    next = after(next);
    tile -= T::KEY_GROUPS;
    wgmma_wait<1>();
    if (!T::EARLY) wgmma_wait<0>();
    if (T::MASK_EVERY_TILE) mask(first_key(tile));
  }

  // Asks early whether the next step's tiles are there, because the answer takes its time.
  __device__ __forceinline__ void look_ahead() {
    if (T::CONSUMERS == 3) return;
    const bool there = mbarrier_test_wait(smem.k_full(next.stage), next.parity) && mbarrier_test_wait(smem.v_full(now.stage), now.parity);
    ready = __all_sync(~0u, there);  // a vote, so that ptxas knows it to be the same for all lanes
  }

  __device__ __forceinline__ void end_step() {
    look_ahead();
    wgmma_wait<0>();
    pack();
    release(emptied);
  }

  __device__ __forceinline__ void end() {
    if (T::PING_PONG && group == 0) take_turn();
    mbarrier_wait_or_fault(smem.v_full(now.stage), now.parity);
    issue_output(now.stage, tile != first());
#pragma unroll
    for (int h = 0; h < 2; h++) sums[h] = quad_sum(softmax.sum[h]);
    wgmma_wait<0>();
  }

  // From the first tile's scores on. SMALL: all of them are known to be.
  template <bool SMALL>
  __device__ __forceinline__ void attend() {
    constexpr bool SCALES_Q = SMALL && T::SCALES_Q, SCALES_ROWS = SCALES_Q && !T::Q_REGISTERS;
    if (SCALES_ROWS) {
      named_barrier_sync(1 + T::CONSUMERS + group, 128);
      scale_rows();
    }
    if (!SMALL) softmax.begin(s);
    softmax.template exponentials<!SMALL, true, ROUND>(s);
    pack();
    if (SCALES_ROWS) meet_scaled();
    while (more()) {
      begin_step(tile != first());
      if (!SMALL) look();
      if (ROUND && tile == first() - T::KEY_GROUPS)
        softmax.template exponentials<!SMALL, true, ROUND>(s);
      else
        softmax.template exponentials<!SMALL, !SCALES_Q>(s);
      end_step();
    }
    end();
  }

  // `parity`: of Q's barrier
  __device__ __forceinline__ void run(uint32_t parity = 0) {
    load_q(parity);
    begin();
    if constexpr (T::LENGTHS) {
      const bool small = judge();
      uint32_t scaled_q[4][4];  // the products are still reading q
      if (T::SCALES_Q && T::Q_REGISTERS) {
#pragma unroll
        for (int i = 0; i < 16; i++) scaled_q[i / 4][i % 4] = scaled(q[i / 4][i % 4]);
      }
      wgmma_wait<0>();
      mask(first_key(tile));
      if (small) {
        if (T::SCALES_Q && T::Q_REGISTERS) {
#pragma unroll
          for (int i = 0; i < 16; i++) q[i / 4][i % 4] = scaled_q[i / 4][i % 4];
        }
        return attend<true>();
      }
    } else {
      wgmma_wait<0>();
      mask(first_key(tile));
    }
    attend<false>();
  }
};
