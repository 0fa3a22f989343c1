/* Shape, shared memory and share of the work of one block of the Hopper attention, and the producer warp that feeds it. */
#pragma once
#include <cuda.h>

#include "common/mbarrier_sm90a.cuh"
#include "common/tma_sm90a.cuh"
#include "dims.h"

constexpr int ATTENTION_BOX = 64;  // both tensor maps have boxes of 64 columns x 64 rows of one sequence

/* ROW_GROUPS x KEY_GROUPS consumer warpgroups of 64 rows (one of the two is 1): the row groups share the keys they read, the key groups share out the
   tiles of keys of the same rows, tile i to group i mod KEY_GROUPS. */
template <int ROW_GROUPS_, int KEY_GROUPS_, int KEYS_, int STAGES_, bool CAUSAL_>
struct AttentionTile {
  static constexpr int ROW_GROUPS = ROW_GROUPS_, KEY_GROUPS = KEY_GROUPS_, KEYS = KEYS_, STAGES = STAGES_;
  static constexpr bool CAUSAL = CAUSAL_;
  static constexpr bool PING_PONG = KEY_GROUPS == 1 && ROW_GROUPS > 1;     // row groups take turns at issuing products
  static constexpr bool Q_REGISTERS = KEYS == 64;                          // Q as a register operand, or from shared memory: as measured
  static constexpr bool MASK_EVERY_TILE = CAUSAL && 64 * ROW_GROUPS > KEYS;  // else only a group's first tile can have hidden keys
  static constexpr int CONSUMERS = ROW_GROUPS * KEY_GROUPS;
  static constexpr int THREADS = 128 * CONSUMERS + 128;
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 1 ? 232 : CONSUMERS == 2 ? 240 : 160, PRODUCER_REGISTERS = 24;
  static constexpr int ROWS = 64 * ROW_GROUPS;
  static constexpr int Q_BYTES = ROWS * 128, KV_BYTES = KEYS * 128;
  static constexpr int PARTIAL_BYTES = KEY_GROUPS > 1 ? 64 * 64 * 4 + 128 * 16 : 0;  // O, and two references and two sums a thread
  static constexpr int SMEM_BYTES = 1024 + Q_BYTES + STAGES * 2 * KV_BYTES + CONSUMERS * PARTIAL_BYTES + 8 + 24 * STAGES;  // 1024: room to align
  static_assert(SMEM_BYTES <= 232448 && (ROW_GROUPS == 1 || KEY_GROUPS == 1) && CONSUMERS <= 3);
};

// Where things lie in shared memory.
template <class T>
struct AttentionSmem {
  uint32_t base;
  __device__ __forceinline__ uint32_t q() const { return base; }
  __device__ __forceinline__ uint32_t k(int stage) const { return base + T::Q_BYTES + stage * 2 * T::KV_BYTES; }
  __device__ __forceinline__ uint32_t v(int stage) const { return k(stage) + T::KV_BYTES; }
  __device__ __forceinline__ uint32_t partial(int group) const { return base + T::Q_BYTES + T::STAGES * 2 * T::KV_BYTES + group * T::PARTIAL_BYTES; }
  __device__ __forceinline__ uint32_t q_full() const { return partial(T::CONSUMERS); }
  __device__ __forceinline__ uint32_t k_full(int stage) const { return q_full() + 8 + 24 * stage; }
  __device__ __forceinline__ uint32_t v_full(int stage) const { return k_full(stage) + 8; }
  __device__ __forceinline__ uint32_t empty(int stage) const { return k_full(stage) + 16; }
};

// What a block works on.
struct AttentionWork {
  int head, sequence, row;  // of its first query
  int seq_len;
  int tiles;  // of keys; every key group gets one, be it past the end: zeros, and no weight
};

// Causal: blockIdx = (head, row tile from the last, sequence), so that the longest rows start first. Otherwise (row tile, head, sequence).
template <class T>
__device__ __forceinline__ AttentionWork attention_work(int seq_len) {
  AttentionWork work;
  work.head = T::CAUSAL ? blockIdx.x : blockIdx.y;
  work.sequence = blockIdx.z;
  work.row = (T::CAUSAL ? gridDim.y - 1 - blockIdx.y : blockIdx.x) * T::ROWS;
  work.seq_len = seq_len;
  work.tiles = max(T::KEY_GROUPS, ((T::CAUSAL ? min(seq_len, work.row + T::ROWS) : seq_len) + T::KEYS - 1) / T::KEYS);
  return work;
}

/* As mbarrier_wait, but what never ends faults instead of trapping: a trap that both roles can reach makes ptxas ignore setmaxnreg, and the consumers
   spill. */
__device__ __forceinline__ void wait_for(uint32_t barrier, uint32_t parity) {
  uint32_t tries = 0;
  while (!mbarrier_try_wait(barrier, parity))
    asm volatile(
        "{\n.reg .pred p;\n.reg .u64 nowhere;\n"
        "setp.gt.u32 p, %0, 4000000;\n"
        "mov.u64 nowhere, 0;\n"
        "@p st.global.u32 [nowhere], %0;\n}\n" ::"r"(++tries));
}

// 9.7.13.15.16 mbarrier.test_wait: whether a wait would be over, without waiting
__device__ __forceinline__ bool mbarrier_test_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}\n"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done;
}

template <class T>
__device__ __forceinline__ void attention_init(const AttentionSmem<T>& smem) {
  mbarrier_init(smem.q_full(), 1);
#pragma unroll
  for (int s = 0; s < T::STAGES; s++) {
    mbarrier_init(smem.k_full(s), 1);
    mbarrier_init(smem.v_full(s), 1);
    mbarrier_init(smem.empty(s), 4 * T::ROW_GROUPS);  // by warp
  }
  fence_mbarrier_init();
}

template <int ROWS>
__device__ __forceinline__ void load_rows(uint32_t to, const CUtensorMap* qkv, int column, int row, int sequence, uint32_t barrier) {
  mbarrier_expect(barrier, ROWS * 128);
#pragma unroll
  for (int r = 0; r < ROWS; r += ATTENTION_BOX) tma_load_3d(to + r * 128, qkv, column, row + r, sequence, barrier);
}

// One thread: Q once, then K and V tiles from the last one down, so that the ragged and the diagonal ones come first.
template <class T>
__device__ __forceinline__ void attention_produce(const CUtensorMap* qkv, const AttentionSmem<T>& smem, const AttentionWork& work) {
  const int column = work.head * HEAD_DIM;
  load_rows<T::ROWS>(smem.q(), qkv, column, work.row, work.sequence, smem.q_full());
  Ring<T::STAGES> ring;
  for (int tile = work.tiles - 1; tile >= 0; tile--) {
    const int s = ring.stage, key = tile * T::KEYS;
    wait_for(smem.empty(s), ring.parity ^ 1);
    load_rows<T::KEYS>(smem.k(s), qkv, D + column, key, work.sequence, smem.k_full(s));
    load_rows<T::KEYS>(smem.v(s), qkv, 2 * D + column, key, work.sequence, smem.v_full(s));
    ring.advance();
  }
}
