/* Who does what of the attention, and how results of a unit's parts come together.

   A unit is 128 rows of one head against the tiles of 128 keys that any of them sees. All tiles of all units, in the units'
   order, are dealt to the blocks in equal runs (1024 rows: 96 units of 8 tiles, 6 tiles for each of 128 blocks). A block
   takes its units last to first, so that the only one that may go on in the next block comes first: its part goes to
   memory, and the block that has the unit's last tile, and comes to it last, adds up what the ones before it left. */
#pragma once

#include "common/sync_sm90a.cuh"
#include "exact/exact_memory_sm90a.cuh"
#include "exact/exact_softmax_sm90a.cuh"

namespace exact90 {

// Where the sequence of a row begins
__device__ __forceinline__ int sequence_of(const ExactArgs& args, int row) {
  return args.seq_len == args.rows ? 0 : row / args.seq_len * args.seq_len;
}

struct AttentionUnit {
  int head, row, first_tile, tiles;

  __device__ __forceinline__ AttentionUnit(const ExactArgs& args, int unit) {
    head = unit % HEADS;
    row = unit / HEADS * ROW_TILE;
    const int last = min(row + ROW_TILE, args.rows) - 1;
    const int end = args.causal ? last + 1 : sequence_of(args, last) + args.seq_len;
    first_tile = sequence_of(args, row) / ROW_TILE;
    tiles = (end - 1) / ROW_TILE + 1 - first_tile;
  }
};

constexpr int S_SHARE = S_SCALES + 2 * SCALE_WARPS * 16;  // the block's share in shared memory, four words
static_assert(S_SHARE + 16 <= S_BARRIERS, "room");

// `left` tiles, down from `unit`'s; of the first unit not all may be the block's or any below it.
struct Share {
  int unit, left;

  __device__ __forceinline__ explicit Share(uint32_t shared) : unit(first_unit(shared)), left(load_shared_word(shared + S_SHARE + 8)) {}
  static __device__ __forceinline__ int first_unit(uint32_t shared) { return load_shared_word(shared + S_SHARE); }
  static __device__ __forceinline__ int first_end(uint32_t shared) { return load_shared_word(shared + S_SHARE + 4); }
  static __device__ __forceinline__ int full(uint32_t shared) { return load_shared_word(shared + S_SHARE + 12); }

  // How many units came before, odd or even
  __device__ __forceinline__ uint32_t parity(uint32_t shared) const { return (first_unit(shared) - unit) & 1; }
  __device__ __forceinline__ void advance(int taken) {
    left -= taken;
    unit--;
  }
};

// The tiles [begin, end) of its unit that come next.
struct Part {
  int begin, end;

  __device__ __forceinline__ Part(uint32_t shared, const Share& share, const AttentionUnit& unit)
      : end(share.unit == Share::first_unit(shared) ? Share::first_end(shared) : unit.tiles) {
    begin = max(end - share.left, 0);
  }
};

// Where the blocks put parts: nothing else is there between QKV and the projection.
constexpr int PART_VECTORS = 9;  // of four floats for each computing thread: 32 of output, two references, two sums
static_assert(PARTIAL_ROWS * ROW_BYTES >= size_t{256} * PART_VECTORS * CONSUMERS * 16, "room for 256 blocks");
__device__ __forceinline__ float4* part_of(const Memory& memory, int block) {
  return reinterpret_cast<float4*>(memory.partial()) + block * (PART_VECTORS * CONSUMERS) + thread_index();
}
// Whether a warpgroup's part is there
__device__ __forceinline__ unsigned* flag_of(const Memory& memory, int block, int group) {
  return reinterpret_cast<unsigned*>(memory.x1()) + (block * 2 + group) * 8;
}

// By one thread, a grid barrier or more before the attention: who does what, and no part is there.
__device__ __forceinline__ void share_attention(uint32_t shared, const ExactArgs& args) {
  const Memory memory(args);
  for (int group = 0; group < 2; group++) __stcg(flag_of(memory, crew.rank, group), 0u);
  int all = 0;
  for (int unit = 0; unit < memory.rows / ROW_TILE * HEADS; unit += HEADS) all += HEADS * AttentionUnit(args, unit).tiles;
  const int each = (all + crew.size - 1) / crew.size, first = crew.rank * each, left = min(all - first, each);
  int unit = 0, end = 0;
  if (left > 0)
    for (int at = first + left - 1;; unit += HEADS) {
      const int tiles = AttentionUnit(args, unit).tiles;
      if (at < HEADS * tiles) {
        unit += at / tiles;
        end = at % tiles + 1;
        break;
      }
      at -= HEADS * tiles;
    }
  store_shared_word(shared + S_SHARE, unit);
  store_shared_word(shared + S_SHARE + 4, end);
  store_shared_word(shared + S_SHARE + 8, left);
  store_shared_word(shared + S_SHARE + 12, each);
}

// One warpgroup leaves its part.
__device__ __forceinline__ void leave_part(const Memory& memory, int group, const float (&total)[32], const Softmax& softmax) {
  float4* to = part_of(memory, crew.rank);
#pragma unroll
  for (int i = 0; i < 8; i++) __stcg(to + i * CONSUMERS, make_float4(total[4 * i], total[4 * i + 1], total[4 * i + 2], total[4 * i + 3]));
  __stcg(to + 8 * CONSUMERS, make_float4(softmax.reference[0], softmax.reference[1], softmax.sum[0], softmax.sum[1]));
  named_barrier_sync(GROUP_BARRIER + group, 128);
  if (thread_index() % 128 == 0)
    asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag_of(memory, crew.rank, group)) : "memory");  // PTX ISA 9.0, 9.7.9.12
}

// Adds what `block` left. What never comes ends as a fault, as in GridBarrier.
__device__ __forceinline__ void add_part(const Memory& memory, int block, int group, float (&total)[32], Softmax& softmax) {
  const unsigned* flag = flag_of(memory, block, group);
  unsigned there, polls = 0;
  for (;;) {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(flag) : "memory");
    if (there) break;
    asm volatile(
        "{\n.reg .pred p;\n.reg .u64 nowhere;\n"
        "setp.gt.u32 p, %0, 67108864;\n"
        "mov.u64 nowhere, 0;\n"
        "@p st.global.u32 [nowhere], %0;\n}\n" ::"r"(++polls));
  }
  const float4* from = part_of(memory, block);
  float4 v[PART_VECTORS];
#pragma unroll
  for (int i = 0; i < PART_VECTORS; i++) v[i] = __ldcg(from + i * CONSUMERS);
  float mine[2], its[2];
  softmax.join({v[8].x, v[8].y}, {v[8].z, v[8].w}, mine, its);
#pragma unroll
  for (int i = 0; i < 8; i++) {
    total[4 * i] = fmaf(v[i].x, its[0], total[4 * i] * mine[0]);
    total[4 * i + 1] = fmaf(v[i].y, its[0], total[4 * i + 1] * mine[0]);
    total[4 * i + 2] = fmaf(v[i].z, its[1], total[4 * i + 2] * mine[1]);
    total[4 * i + 3] = fmaf(v[i].w, its[1], total[4 * i + 3] * mine[1]);
  }
}

}  // namespace exact90
