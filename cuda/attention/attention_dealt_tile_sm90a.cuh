/* Attention whose work is dealt out evenly: every block, one a multiprocessor, gets as many tiles of keys as any other, one at most more or less. Units of 192
   rows would be 136 blocks at 2113 rows, of which 132 multiprocessors have no more than four to do in a second wave.

   A unit is three groups of 64 rows, of all groups of all heads, one head behind the other. Those of two heads read the keys of both, tile by tile in turn.
   Where all blocks have whole units without that, each head is filled up to whole units instead (`dealing` in src/cuda/hopper/plan/attention.rs).

   The tiles of all units, one unit behind the other and each from its last keys down, are a line, of which a block's share is a piece. So a share begins in the
   midst of one unit and ends in the midst of another. Of a unit's parts the one with its beginning is finished by its block, which does that last; the others,
   which theirs do first, go there through memory, so nobody waits long. */
#pragma once
#include "attention/attention_tile_sm90a.cuh"

struct DealtTile : AttentionTile<3, 1, 128, 5, false, 1, 2> {
  using Base = AttentionTile<3, 1, 128, 5, false, 1, 2>;
  static constexpr bool DEALT = true;
  static constexpr int SQUARES = HEADS, TELLERS = HEADS;  // by head
  static constexpr int BARRIERS = Base::BARRIERS + ROW_GROUPS + 1;
  static constexpr int SMEM_BYTES = Base::SMEM_BYTES + 8 * (BARRIERS - Base::BARRIERS) + 4 * (SQUARES - Base::SQUARES);
  static_assert(SMEM_BYTES <= MOST_SHARED);
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
  int rows, key_tiles;  // of a head, in whole groups, and more than one; tiles of a unit
  int share, longer;    // tiles of a block; so many blocks have one more
};

// What a block is to do: of a unit, the tiles of keys from `tiles` - 1 down to `first`
struct DealtShare {
  const Dealing& dealing;
  int number;  // the first block to start has the last share, as the others wait for what those behind them have done
  __device__ __forceinline__ int start_of(int share) const { return share * dealing.share + min(share, dealing.longer); }
  __device__ __forceinline__ int start() const { return start_of(number); }
  __device__ __forceinline__ int end() const { return start_of(number + 1); }
  // From there on, the work of its first group
  __device__ __forceinline__ AttentionWork piece(int at) const {
    const int unit = at / dealing.key_tiles, done = at - unit * dealing.key_tiles, row = unit * DealtTile::ROWS, head = row / dealing.rows;
    AttentionWork work;
    work.head = head % HEADS;
    work.sequence = head / HEADS;
    work.row = row - head * dealing.rows;
    work.seq_len = dealing.seq_len;
    work.tiles = dealing.key_tiles - done;
    work.first = max(0, work.tiles - (end() - at));
    work.stream = 0;
    work.streams = left(work) < DealtTile::ROW_GROUPS ? 2 : 1;
    return work;
  }
  // Groups of its head from there on
  __device__ __forceinline__ int left(const AttentionWork& work) const { return (dealing.rows - work.row) / 64; }
  // The same of the next head
  __device__ __forceinline__ static AttentionWork next_head(AttentionWork work) {
    if (++work.head == HEADS) work.head = 0, work.sequence++;
    return work;
  }
  // The work of another group
  __device__ __forceinline__ AttentionWork of_group(AttentionWork work, int group) const {
    const int own = left(work);
    // A stage counts three groups: where it is read by two, the first of them counts as two, and where by one, that as three.
    work.users = work.streams == 1 ? 1 : own == 1 ? 3 - group : group == 2 ? 3 : 2 - group;
    work.row += 64 * group;
    if (group < own) return work;
    work.row -= dealing.rows;
    work.stream = 1;
    return next_head(work);
  }
  // Shares behind this one that have parts of the unit that it has the beginning, but not the end of
  __device__ __forceinline__ int parts() const {
    const int tiles = dealing.key_tiles, unit = (end() - 1) / tiles * tiles;
    int count = 0;
    if (unit >= start())
      while (start_of(number + 1 + count) < unit + tiles) count++;
    return count;
  }
};
