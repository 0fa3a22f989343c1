/* Attention whose work is dealt out evenly: every block, one a multiprocessor, gets as many tiles of keys as any other, one at most more or less. Units of 192
   rows of a head would be 144 blocks at 2113 rows, of which 132 multiprocessors have no more than twelve to do in a second wave.

   The tiles of all units, one unit behind the other and each from its last keys down, are a line, of which a block's share is a piece. So a share begins in the
   midst of one unit and ends in the midst of another. Of a unit's parts the one with its beginning is finished by its block, which does that last; the others,
   which theirs do first, go there through memory, so nobody waits long. */
#pragma once
#include "attention/attention_tile_sm90a.cuh"

struct DealtTile : AttentionTile<3, 1, 128, 5, false> {
  using Base = AttentionTile<3, 1, 128, 5, false>;
  static constexpr bool DEALT = true;
  static constexpr int SQUARES = HEADS, TELLERS = HEADS;  // by head
  static constexpr int BARRIERS = Base::BARRIERS + ROW_GROUPS + 1;
  static constexpr int SMEM_BYTES = Base::SMEM_BYTES + 8 * (BARRIERS - Base::BARRIERS) + 4 * (SQUARES - Base::SQUARES);
  static_assert(SMEM_BYTES <= 232448);
};

struct DealtSmem : AttentionSmem<DealtTile> {
  using T = DealtTile;
  // Q of a piece has been read, by warp
  __device__ __forceinline__ uint32_t q_empty(int group) const { return barrier(T::Base::BARRIERS + group); }
  // The block's part of another's unit is in memory
  __device__ __forceinline__ uint32_t parted() const { return barrier(T::Base::BARRIERS + T::ROW_GROUPS); }
};

// A part of a unit's output in memory, by row group: O by its sums, in fp16, then two references and two sums, as threads have them
constexpr int PART_ROWS_BYTES = 64 * 64 * 2, PART_GROUP_BYTES = PART_ROWS_BYTES + 128 * 16, PART_BYTES = 3 * PART_GROUP_BYTES;
static_assert(PART_BYTES <= 2 * DealtTile::KV_BYTES, "a stage of the ring has room for it");

struct Dealing {
  int seq_len;
  int row_tiles, key_tiles;  // of a sequence: units of a head, tiles of a unit
  int share, longer;         // tiles of a block; so many blocks have one more
};

// What a block is to do: of a unit, the tiles of keys from `tiles` - 1 down to `first`
struct DealtShare {
  const Dealing& dealing;
  int number;  // the first block to start has the last share, as the others wait for what those behind them have done
  __device__ __forceinline__ int start_of(int share) const { return share * dealing.share + min(share, dealing.longer); }
  __device__ __forceinline__ int start() const { return start_of(number); }
  __device__ __forceinline__ int end() const { return start_of(number + 1); }
  __device__ __forceinline__ AttentionWork piece(int at) const {
    const int unit = at / dealing.key_tiles, done = at - unit * dealing.key_tiles, head = unit / dealing.row_tiles;
    AttentionWork work;
    work.head = head % HEADS;
    work.sequence = head / HEADS;
    work.row = (unit - head * dealing.row_tiles) * DealtTile::ROWS;
    work.seq_len = dealing.seq_len;
    work.tiles = dealing.key_tiles - done;
    work.first = max(0, work.tiles - (end() - at));
    work.stream = 0;
    work.streams = 1;
    return work;
  }
  // Shares behind this one that have parts of its last unit, of which it leaves `first` tiles to them
  __device__ __forceinline__ int parts(int first) const {
    int count = 0;
    while (start_of(number + 1 + count) < end() + first) count++;
    return count;
  }
};
