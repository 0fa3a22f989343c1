/* Shape, shared memory and share of the work of one block of the Hopper attention, and the producer warp that feeds it. */
#pragma once
#include <cuda.h>

#include "common/mbarrier_sm90a.cuh"
#include "common/shared_sm90a.cuh"
#include "common/sync_sm90a.cuh"
#include "common/tma_sm90a.cuh"
#include "dims.h"

constexpr int ATTENTION_BOX = 64;  // both tensor maps have boxes of 64 columns x 64 rows of one sequence

/* ROW_GROUPS x KEY_GROUPS consumer warpgroups of 64 rows (one of the two is 1): the row groups share the keys they read, the key groups share out the
   tiles of keys of the same rows, counted from the last: tile i to group i mod KEY_GROUPS. With BLOCKS 2 the two blocks of a cluster have the same rows and
   half of the keys each (attention_cluster_sm90a.cuh). CAST_WARPS single warps cast; where attention is causal none does, though shared memory has their
   places. */
template <int ROW_GROUPS_, int KEY_GROUPS_, int KEYS_, int STAGES_, bool CAUSAL_, int BLOCKS_ = 1,
          int CAST_WARPS_ = (BLOCKS_ > 1 || ROW_GROUPS_ == 2 ? 2 : 3)>
struct AttentionTile {
  static constexpr int ROW_GROUPS = ROW_GROUPS_, KEY_GROUPS = KEY_GROUPS_, KEYS = KEYS_, STAGES = STAGES_, BLOCKS = BLOCKS_;
  static constexpr bool CAUSAL = CAUSAL_;
  static constexpr bool OWN_FIRST = false;                                 // the tile of the block's own rows first, then those behind it, round about
  static constexpr bool DEALT = false;                                     // a block has pieces of several tiles of rows (attention_dealt_tile_sm90a.cuh)
  // Whether it is told how long its queries and keys are (lengths_sm90a.cuh). Up to 640 rows that gains nothing.
  static constexpr bool LENGTHS = KEY_GROUPS == 1;
  static constexpr int SQUARES = LENGTHS ? (ROW_GROUPS + 1) / 2 * 2 : 0;   // of the longest query and key, by row group
  static constexpr int TELLERS = ROW_GROUPS;                               // threads that tell them
  static constexpr bool PING_PONG = KEY_GROUPS == 1 && ROW_GROUPS > 1;     // row groups take turns at issuing products
  static constexpr bool Q_REGISTERS = KEYS == 64;                          // Q as a register operand, or from shared memory: as measured
  static constexpr bool MASK_EVERY_TILE = CAUSAL && 64 * ROW_GROUPS > KEYS;  // else only a group's first tile can have hidden keys
  static constexpr int CONSUMERS = ROW_GROUPS * KEY_GROUPS;
  // Q, K and V make way in L2 for what the next kernels read: 2048 rows 0 to -0.4 us on an H200, the other forms up to +0.3.
  static constexpr bool READ_ONCE = ROW_GROUPS == 3 && BLOCKS == 1;
  // Exponentials may begin under the warpgroup's own O += P V. With three row groups 4096 rows would take 1.5 us more (H200).
  static constexpr bool EARLY = CONSUMERS < 3;
  // Q is scaled once its scores are known to be small. Not where rows see so few keys that an error in Q is not averaged away.
  static constexpr bool SCALES_Q = LENGTHS && !CAUSAL;
  static constexpr int THREADS = 128 * CONSUMERS + 128;
  // The warps beside the consumers: the producer, then CAST_WARPS that cast, and last one that sets up the barriers while the producer works out where it
  // reads, and then tells lengths, where there are any to tell, and casts, where three do. All of it is code that runs once and is waited for: 5 to 7
  // clocks an instruction (H200).
  static constexpr int PRODUCER = 0, HELPER = 3;
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 3 ? 160 : 232, PRODUCER_REGISTERS = CONSUMERS == 3 ? 32 : 40;
  static constexpr int ROWS = 64 * ROW_GROUPS;
  static constexpr int Q_BYTES = ROWS * 128, KV_BYTES = KEYS * 128;
  // O, and two references and two sums a thread; of a cluster's blocks each gets the half that it finishes
  static constexpr int PARTIAL_BYTES = (KEY_GROUPS > 1 ? 64 * 64 * 4 + 128 * 16 : 0) + (BLOCKS > 1 ? 64 * 32 * 4 + 128 * 8 : 0);
  // A warp that casts has places for so many pieces of so many weights, two in long attention, where it has several chunks to cast.
  static constexpr int CAST_WARPS = CAST_WARPS_, CAST_PLACES = CONSUMERS == 3 && BLOCKS == 1 ? 2 : 1;
  static constexpr int CAST_PIECE = CAST_PLACES == 1 ? 4096 : CAST_WARPS == 3 ? 1024 : 2048;
  static constexpr int CAST_BYTES = CAST_PLACES * (4 * CAST_PIECE + 128);
  static constexpr int BARRIERS = LENGTHS + ROW_GROUPS + 3 * STAGES + (CAST_WARPS > 0 ? ROW_GROUPS + CAST_PLACES * CAST_WARPS : 0);
  static constexpr int SMEM_BYTES = SHARED_ALIGNMENT + Q_BYTES + STAGES * 2 * KV_BYTES + CONSUMERS * PARTIAL_BYTES + CAST_WARPS * CAST_BYTES +
                                    8 * BARRIERS + 4 * SQUARES;
  static_assert(SMEM_BYTES <= MOST_SHARED && (ROW_GROUPS == 1 || KEY_GROUPS == 1) && (BLOCKS == 1 || KEY_GROUPS == 1));
  static_assert(CONSUMERS == 2 || CONSUMERS == 3, "registers for so many");
};

// Where things lie in shared memory.
template <class T>
struct AttentionSmem {
  uint32_t base;
  __device__ __forceinline__ uint32_t q() const { return base; }
  __device__ __forceinline__ uint32_t k(int stage) const { return base + T::Q_BYTES + stage * 2 * T::KV_BYTES; }
  __device__ __forceinline__ uint32_t v(int stage) const { return k(stage) + T::KV_BYTES; }
  __device__ __forceinline__ uint32_t partial(int group) const { return base + T::Q_BYTES + T::STAGES * 2 * T::KV_BYTES + group * T::PARTIAL_BYTES; }
  __device__ __forceinline__ uint32_t cast(int warp) const { return partial(T::CONSUMERS) + warp * T::CAST_BYTES; }
  __device__ __forceinline__ uint32_t barrier(int i) const { return cast(T::CAST_WARPS) + 8 * i; }
  // The squares are there.
  __device__ __forceinline__ uint32_t measured() const { return barrier(0); }
  __device__ __forceinline__ uint32_t q_full(int group) const { return barrier(T::LENGTHS + group); }
  __device__ __forceinline__ uint32_t k_full(int stage) const { return barrier(T::LENGTHS + T::ROW_GROUPS + 3 * stage); }
  __device__ __forceinline__ uint32_t v_full(int stage) const { return k_full(stage) + 8; }
  __device__ __forceinline__ uint32_t empty(int stage) const { return k_full(stage) + 16; }
  __device__ __forceinline__ uint32_t received(int group) const { return k_full(T::STAGES) + 8 * group; }
  __device__ __forceinline__ uint32_t cast_full(int warp) const { return received(T::ROW_GROUPS) + 8 * T::CAST_PLACES * warp; }
  __device__ __forceinline__ uint32_t squares(int i) const { return barrier(T::BARRIERS) + 4 * i; }
};

// What a warpgroup works on.
struct AttentionWork {
  int head, sequence, row;  // of its first query
  int seq_len;
  int first, tiles;     // its block's tiles of keys are first .. tiles - 1; every key group gets one, be it past the end: zeros, and no weight
  int stream, streams;  // a block that has rows of several heads loads the keys of each, tile by tile in turn
  int users;            // DEALT: as how many of the block's groups it counts when it has read a stage
};

// Causal: blockIdx = (head, row tile from the last, sequence), so that the longest rows start first. Otherwise (row tile, head, sequence).
template <class T>
__device__ __forceinline__ AttentionWork block_work(int seq_len, int row_group) {
  const int row = (T::CAUSAL ? gridDim.y - 1 - blockIdx.y : blockIdx.x) * T::ROWS;
  AttentionWork work;
  work.head = T::CAUSAL ? blockIdx.x : blockIdx.y;
  work.sequence = blockIdx.z;
  work.row = row + 64 * row_group;
  work.seq_len = seq_len;
  work.first = 0;
  work.tiles = max(T::KEY_GROUPS, ((T::CAUSAL ? min(seq_len, row + T::ROWS) : seq_len) + T::KEYS - 1) / T::KEYS);
  work.stream = 0;
  work.streams = 1;
  return work;
}

// Groups of 64 rows of a sequence that clusters take, and 2^31 / count, rounded up: a division would be 25 instructions in front of the first copy.
struct RowGroups {
  int count;
  uint32_t inverse;
  // group / count, where group * count is less than 2^31
  __device__ __forceinline__ int heads_below(int group) const { return __umulhi(2 * group, inverse); }
};
constexpr RowGroups NO_CLUSTERS = {0, 0};  // where a block has a tile of rows of its own

/* Clusters: cluster c has row groups ROW_GROUPS c and on of all row groups of all heads of all sequences, `groups` of
   each head, its first block the first half of the keys. No cluster is left with fewer, because ROW_GROUPS divides the
   number of heads. */
template <class T>
__device__ __forceinline__ AttentionWork cluster_work(int seq_len, RowGroups groups, int row_group) {
  static_assert(HEADS % T::ROW_GROUPS == 0 && !T::CAUSAL);
  const int start = T::ROW_GROUPS * (blockIdx.x / 2), mine = start + row_group;
  const int head = groups.heads_below(mine), half = blockIdx.x % 2, tiles = max(2, (seq_len + T::KEYS - 1) / T::KEYS);
  AttentionWork work;
  work.head = head % HEADS;
  work.sequence = head / HEADS;
  work.row = 64 * (mine - head * groups.count);
  work.seq_len = seq_len;
  work.first = half == 0 ? 0 : tiles / 2;
  work.tiles = half == 0 ? tiles / 2 : tiles;
  work.stream = head - groups.heads_below(start);
  work.streams = groups.heads_below(start + T::ROW_GROUPS - 1) - groups.heads_below(start) + 1;
  return work;
}

template <class T>
__device__ __forceinline__ AttentionWork attention_work(int seq_len, RowGroups groups, int row_group) {
  if constexpr (T::BLOCKS > 1)
    return cluster_work<T>(seq_len, groups, row_group);
  else
    return block_work<T>(seq_len, row_group);
}

// `users`: groups that empty an even stage, and an odd one; `receivers`: groups that hear from the other block of the cluster
template <class T>
__device__ __forceinline__ void init_barriers(const AttentionSmem<T>& smem, const int (&users)[2], int receivers) {
  if (T::LENGTHS) mbarrier_init(smem.measured(), T::TELLERS);
#pragma unroll
  for (int g = 0; g < T::ROW_GROUPS; g++) mbarrier_init(smem.q_full(g), 1);
#pragma unroll
  for (int s = 0; s < T::STAGES; s++) {
    mbarrier_init(smem.k_full(s), 1);
    mbarrier_init(smem.v_full(s), 1);
    mbarrier_init(smem.empty(s), 4 * users[s % 2]);  // by warp
  }
#pragma unroll
  for (int i = 0; i < receivers; i++) mbarrier_init(smem.received(i), 1);
#pragma unroll
  for (int i = 0; i < T::CAST_PLACES * T::CAST_WARPS; i++) mbarrier_init(smem.cast_full(0) + 8 * i, 1);
  fence_mbarrier_init();
#pragma unroll
  for (int i = 0; i < receivers; i++) mbarrier_expect(smem.received(i), T::PARTIAL_BYTES);
}

template <class T>
__device__ __forceinline__ void attention_init(const AttentionSmem<T>& smem, int seq_len, RowGroups groups) {
  static_assert(T::BLOCKS == 1 || T::STAGES % 2 == 0, "of two streams, each has every other stage");
  int second = 0;
  if (T::BLOCKS > 1) {
#pragma unroll
    for (int g = 0; g < T::ROW_GROUPS; g++) second += attention_work<T>(seq_len, groups, g).stream;
  }
  // At least 1, as a count must be: where each group has a stream of its own nobody waits for these.
  init_barriers(smem, {max(T::ROW_GROUPS - second, 1), second > 0 ? second : T::ROW_GROUPS}, T::BLOCKS > 1 ? T::ROW_GROUPS : 0);
}

template <int ROWS, bool ONCE>
__device__ __forceinline__ void load_rows(uint32_t to, const CUtensorMap* qkv, int column, int row, int sequence, uint32_t barrier) {
#pragma unroll
  for (int r = 0; r < ROWS; r += ATTENTION_BOX) {
    if constexpr (ONCE)
      tma_load_3d_once(to + r * 128, qkv, column, row + r, sequence, barrier, evict_first_policy());
    else
      tma_load_3d(to + r * 128, qkv, column, row + r, sequence, barrier);
  }
}

// One thread loads Q once, then K and V tiles from the last one down, so that the ragged and the diagonal ones come first.
template <class T>
struct AttentionProducer {
  const CUtensorMap* qkv;
  const AttentionSmem<T>& smem;
  AttentionWork work[T::ROW_GROUPS];

  __device__ __forceinline__ AttentionProducer(const CUtensorMap* qkv, const AttentionSmem<T>& smem) : qkv(qkv), smem(smem) {}
  // All that needs no data, so that between the end of QKV and the first copies there is nothing else: in front of the barriers' set-up, and behind it
  __device__ __forceinline__ void find(int seq_len, RowGroups groups) {
#pragma unroll
    for (int g = 0; g < T::ROW_GROUPS; g++) work[g] = attention_work<T>(seq_len, groups, g);
  }
  __device__ __forceinline__ void expect() const {
#pragma unroll
    for (int g = 0; g < T::ROW_GROUPS; g++) {
      mbarrier_expect(smem.q_full(g), 64 * 128);
      if (g < streams()) mbarrier_expect(smem.k_full(g), T::KV_BYTES);
    }
  }

  __device__ __forceinline__ int streams() const { return T::BLOCKS > 1 ? work[0].streams : 1; }
  __device__ __forceinline__ void load_q(int g) const {
    load_rows<64, T::READ_ONCE>(smem.q() + g * 8192, qkv, work[g].head * HEAD_DIM, work[g].row, work[g].sequence, smem.q_full(g));
  }
  __device__ __forceinline__ void load_keys(uint32_t to, int matrix, int tile, int stream, uint32_t barrier) const {
    int head = work[0].head + stream, sequence = work[0].sequence;
    if (T::BLOCKS > 1 && head >= HEADS) head -= HEADS, sequence++;
    load_rows<T::KEYS, T::READ_ONCE>(to, qkv, matrix * D + head * HEAD_DIM, tile * T::KEYS, sequence, barrier);
  }
  __device__ __forceinline__ void load_k(int stage, int tile, int stream) const { load_keys(smem.k(stage), 1, tile, stream, smem.k_full(stage)); }
  __device__ __forceinline__ void load_v(int stage, int tile, int stream) const {
    mbarrier_expect(smem.v_full(stage), T::KV_BYTES);
    load_keys(smem.v(stage), 2, tile, stream, smem.v_full(stage));
  }

  __device__ __forceinline__ void run() const {
    const int last = work[0].tiles - 1;
#pragma unroll
    for (int g = 0; g < T::ROW_GROUPS; g++) {  // what the first products want, in their order
      load_q(g);
      if (g < streams()) load_k(g, last, g);
    }
    // Behind the wait, so that the projection behind may rely on all weights that were cast before attention; and behind the copies that are waited for
    pdl_launch();
    Ring<T::STAGES> ring;
    for (int tile = last; tile >= (T::BLOCKS > 1 ? work[0].first : 0); tile--)
      for (int stream = 0; stream < streams(); stream++, ring.advance()) {
        if (tile < last) {
          mbarrier_wait_or_fault(smem.empty(ring.stage), ring.parity ^ 1);
          mbarrier_expect(smem.k_full(ring.stage), T::KV_BYTES);
          load_k(ring.stage, tile, stream);
        }
        load_v(ring.stage, tile, stream);
      }
  }
};
