/* Shape and shared memory of a block of QKV and attention in one kernel (qkv_attention_sm90a.cuh). */
#pragma once
#include "attention/attention_tile_sm90a.cuh"
#include "gemm/gemm_sm90a.cuh"

constexpr int MOST_HEAD_BLOCKS = 8;  // of a cluster, which has the rows of a head

struct QkvAttentionTile : AttentionTile<2, 1, 128, 6, false, 1, 0> {
  static constexpr bool OWN_FIRST = true;
  // Of the longest keys of each half of a block's tile, and of the own queries by row group; and room to align
  static constexpr int KEY_SQUARES = 2 * MOST_HEAD_BLOCKS, SQUARES = KEY_SQUARES + 4, TELLERS = 1;
  static constexpr bool MASK_EVERY_TILE = true;  // the ragged one may be any
  static_assert(KEYS == ROWS, "a block has one tile of keys");
};

using QkvHeadShape = GemmShape<128, 192, QKV, D, 4>;

// Q; the tile of the block's own keys, which is the first stage of attention's ring; the product's ring, where the other stages will be; barriers.
struct QkvAttentionSmem : AttentionSmem<QkvAttentionTile> {
  using T = QkvAttentionTile;
  using S = QkvHeadShape;
  static constexpr int BARRIERS = T::BARRIERS + T::SQUARES / 2 + 2 * S::STAGES + 4 + MOST_HEAD_BLOCKS;
  static constexpr int TOTAL = SHARED_ALIGNMENT + T::Q_BYTES + T::STAGES * 2 * T::KV_BYTES + 8 * BARRIERS;
  static_assert(S::STAGES * S::STAGE_BYTES <= (T::STAGES - 1) * 2 * T::KV_BYTES && TOTAL <= MOST_SHARED);
  // The second stage of attention is the first to be free: it lies within the first one of the product.
  static_assert(2 * T::KV_BYTES <= S::STAGE_BYTES);

  __device__ __forceinline__ uint32_t ring() const { return k(1); }
  __device__ __forceinline__ uint32_t full(int stage) const { return barrier(T::BARRIERS + T::SQUARES / 2 + stage); }
  __device__ __forceinline__ uint32_t drained(int stage) const { return full(S::STAGES + stage); }
  // A warpgroup's keys and values lie in the own tile
  __device__ __forceinline__ uint32_t turned(int group) const { return drained(S::STAGES + group); }
  // The block before in the cluster has room for the own tile; and has it
  __device__ __forceinline__ uint32_t wanted() const { return turned(2); }
  __device__ __forceinline__ uint32_t taken() const { return wanted() + 8; }
  // A block's tile may be read from memory
  __device__ __forceinline__ uint32_t published(int block) const { return taken() + 8 + 8 * block; }
};
