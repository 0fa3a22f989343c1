/* Where the exact kernel of Hopper keeps things in its memory and in shared memory.

   Every matrix operand lies as wgmma wants it in shared memory: rows in images, 64 rows of 64 halves under the 128-byte swizzle, 8 KB; weights in strips,
   64 rows of K of 16 columns under the 32-byte swizzle, 2 KB, so that a tile may have any multiple of 16 columns. So plain bulk copies of 8 KB and more
   bring them, without a tensor map. */
#pragma once

#include "common/fragment_sm90a.cuh"
#include "common/mbarrier_sm90a.cuh"
#include "common/reduce.cuh"
#include "common/shared_sm90a.cuh"
#include "exact/exact.cuh"

namespace exact90 {

constexpr int IMAGE = 8192;    // bytes
constexpr int ROW_TILE = 128;  // rows come in pairs of images
constexpr int WIDEST = 192;    // columns of a tile
constexpr int STRIP = 16;      // columns of weights
constexpr int COLUMN = 128;    // bytes of 64 rows of K of a column
constexpr int CHUNK = D;       // of K, has one set of scales; longer sums are made of such parts
constexpr int SLAB = 32;       // columns of weights with one scale

// Vectors, in floats; `inverse`: what undoes the scale of a column of weights
constexpr int V_GAMMA1 = 0, V_BETA1 = V_GAMMA1 + D, V_GAMMA2 = V_BETA1 + D, V_BETA2 = V_GAMMA2 + D,
              V_B_QKV = V_BETA2 + D, V_B_ATTN = V_B_QKV + QKV, V_B_FC = V_B_ATTN + D, V_B_PROJ = V_B_FC + FFN,
              V_INVERSE_QKV = V_B_PROJ + D, V_INVERSE_ATTN = V_INVERSE_QKV + QKV, V_INVERSE_FC = V_INVERSE_ATTN + D,
              V_INVERSE_PROJ = V_INVERSE_FC + FFN, V_LENGTH = V_INVERSE_PROJ + FFN / CHUNK * D;

// Offsets in bytes. A weight image takes 2 bytes for hi and 2 for lo.
constexpr size_t AT_VECTORS = 256, AT_QKV = AT_VECTORS + V_LENGTH * 4, AT_ATTN = AT_QKV + size_t{4} * D * QKV,
                 AT_FC = AT_ATTN + size_t{4} * D * D, AT_PROJ = AT_FC + size_t{4} * D * FFN,
                 AT_ROWS = AT_PROJ + size_t{4} * FFN * D;
// Where a chain of launches hands on the scales of Q and K, of V and of f, as floats.
constexpr int AT_SCALES = 96, SCALE_QK = 0, SCALE_V = 1, SCALE_F = 2;
// Words where the blocks with a part of the same columns meet (exact_few_sm90a.cuh), behind the one of the grid barrier; 0 before the first launch
constexpr int AT_TILES = 128, TILE_WORDS = 32;
static_assert(AT_TILES + 4 * TILE_WORDS <= AT_VECTORS, "in front of the vectors");
constexpr int PARTIAL_ROWS = 4096;  // splits of K times rows may be this many, or splits 1
constexpr size_t ROW_BYTES = D * 4;
constexpr size_t EXACT_FIXED = AT_ROWS + PARTIAL_ROWS * ROW_BYTES;
constexpr size_t EXACT_PREPARED = size_t{4} * WEIGHTS_LEN;  // more where weights are prepared: they as they came
constexpr size_t EXACT_PER_ROW = 4 * D + 4 * FFN + ROW_BYTES + ROW_BYTES;
static_assert(AT_QKV % 256 == 0 && AT_ROWS % 256 == 0 && EXACT_PREPARED % 256 == 0, "aligned");

/* All stages are one function to the compiler, which would keep what several of them compute from the thread's number
   and the shared base in registers throughout, and spill. So each stage asks anew. */
__device__ __forceinline__ int thread_index() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));  // PTX ISA 9.0, 10.1
  return thread;
}
// The warpgroup, in a way that ptxas knows to be the same for all lanes (uniform_warp() of sync_sm90a.cuh)
__device__ __forceinline__ int uniform_group() { return __shfl_sync(~0u, thread_index() / 128, 0); }
// The same value, but to the compiler a new one, that it cannot have computed before
template <class T>
__device__ __forceinline__ T anew(T value) {
  if constexpr (sizeof(T) == 8)
    asm volatile("" : "+l"(value));
  else
    asm volatile("" : "+r"(value));
  return value;
}

__device__ __forceinline__ int padded_rows(const ExactArgs& args) { return (anew(args.rows) + ROW_TILE - 1) / ROW_TILE * ROW_TILE; }

// What lies in memory; `rows` rounded up to ROW_TILE. A launch with only one of the phases works on a prepared memory.
struct Memory {
  unsigned char* base;
  int rows;
  bool prepared;

  __device__ explicit Memory(const ExactArgs& args)
      : base(anew(args.memory)),
        rows(padded_rows(args)),
        prepared(args.phases != (EXACT_CAST | EXACT_FORWARD)) {}
  __device__ float* scales() const { return reinterpret_cast<float*>(base + AT_SCALES); }
  __device__ float* vectors() const { return reinterpret_cast<float*>(base + AT_VECTORS); }
  __device__ float* plain() const { return reinterpret_cast<float*>(base + AT_ROWS); }
  __device__ unsigned char* h() const { return base + AT_ROWS + (prepared ? EXACT_PREPARED : 0); }  // images (rows, D): LN1, attention, LN2
  __device__ unsigned char* wide() const { return h() + size_t{4} * D * rows; }  // images: Q | K | V, later f
  __device__ float* x1() const { return reinterpret_cast<float*>(wide() + size_t{4} * FFN * rows); }  // (rows, D)
  __device__ float* partial() const { return x1() + size_t{D} * rows; }  // (splits, rows, D)
};

// Activations with k_tiles columns of images: [row tile][k tile][hi, lo][2 images]
__device__ __forceinline__ size_t activation_at(int k_tiles, int row, int k_tile, int part) {
  return (static_cast<size_t>(row / ROW_TILE * k_tiles + k_tile) * 2 + part) * (2 * IMAGE) + row / 64 % 2 * IMAGE;
}
// Weights of n columns: [k tile][hi, lo][strip]; `column`: the first one of a strip
__device__ __forceinline__ size_t weight_at(int n, int column, int k_tile, int part) {
  return (static_cast<size_t>(2 * k_tile + part) * n + column) * COLUMN;
}

// ---- the block and its shared memory

// The blocks that compute, of which this is one: usually the whole grid (exact_crew_sm90a.cuh).
struct Crew {
  int rank, size;
};
__shared__ Crew crew;

constexpr int CONSUMERS = 256, THREADS = CONSUMERS + 128, WARPS = CONSUMERS / 32;
// Named barriers: of the computing threads, of each of their warpgroups (2 and 3), of all between two stages, of each
// warpgroup's turn in attention (5 and 6), of each warpgroup's turn in a product (8 and 9).
constexpr int CONSUMER_BARRIER = 1, GROUP_BARRIER = 2, STAGE_BARRIER = 4, TURN_BARRIER = 5, PRODUCT_BARRIER = 8;
constexpr int SCALE_WARPS = 3;  // beside the one that feeds

// Bytes from the 1024-byte aligned start: the ring of loads, 2 KB for each warp to write images through, vectors of the
// tile at hand for each warpgroup, places for reductions and for the scales, barriers.
constexpr int S_RING = 0, RING_BYTES = 204800, S_BOX = S_RING + RING_BYTES, BOX_BYTES = 2048,
              S_VECTORS = S_BOX + WARPS * BOX_BYTES, S_REDUCE = S_VECTORS + 2 * 2 * WIDEST * 4,
              S_SCALES = S_REDUCE + 128, S_BARRIERS = S_REDUCE + 640, SHARED_BYTES = S_BARRIERS + 512 + SHARED_ALIGNMENT;
static_assert(SHARED_BYTES <= MOST_SHARED, "shared memory of one block");

// A full and an empty barrier for each place of each kind of ring; all but that of the widest tiles have the narrow one's.
constexpr int WIDE_SLOTS = 5, NARROW_SLOTS = 8, KV_SLOTS = 5;
constexpr int BAR_WIDE = S_BARRIERS, BAR_NARROW = BAR_WIDE + 16 * WIDE_SLOTS, BAR_Q = BAR_NARROW + 16 * NARROW_SLOTS,
              BAR_KV = BAR_Q + 16, BAR_SCALES = BAR_KV + 16 * KV_SLOTS, BAR_MET = BAR_SCALES + 8,
              BAR_END = BAR_MET + 8;  // BAR_END: one more, of which each kernel of exact_long_sm90a.cu has its own use
static_assert(BAR_END + 8 <= S_BARRIERS + 512, "room for barriers");

// ---- small things

// Written by this very launch, so never by the read-only path.
__device__ __forceinline__ float load(const float* p) { return __ldcg(p); }
__device__ __forceinline__ float4 load_4(const float* p) { return __ldcg(reinterpret_cast<const float4*>(p)); }

__device__ __forceinline__ float magnitude(float4 v) { return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))); }
// The power of two for what a warp's lanes have magnitudes of; as numbers their bits are in the same order
__device__ __forceinline__ float warp_scale(float magnitude) { return scale_for(__uint_as_float(warp_max(__float_as_uint(magnitude)))); }

// 9.7.9.8 ld and 9.7.9.11 st
__device__ __forceinline__ uint32_t load_shared_word(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ void store_shared_word(uint32_t address, uint32_t v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

// One warp stores 16 rows of an image, or so many columns of them from 16-byte chunk `chunk` on, that it has put in its box.
template <int COLUMNS>
__device__ __forceinline__ void store_box(uint32_t box, unsigned char* to, int lane, int chunk) {
  constexpr int CHUNKS = COLUMNS / 8, ROWS = 32 / CHUNKS;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 16 / ROWS; i++) {
    const uint32_t at = COLUMNS == 64 ? 512 * i + 16 * lane : swizzle<128>(i * ROWS + lane / CHUNKS, chunk + lane % CHUNKS);
    __stcg(reinterpret_cast<float4*>(to + at), load_shared_4(box + at));
  }
  __syncwarp();
}

// 16 rows x COLUMNS of scaled values -> hi and lo images, there from 16-byte chunk `chunk` on; `to` and `to_lo`: these 16 rows there. value(i, x) gives the
// four of columns 8 i and up that this thread has in accumulator order.
template <int COLUMNS, class Value>
__device__ __forceinline__ void store_split(uint32_t box, unsigned char* to, unsigned char* to_lo, int lane, int chunk, Value value) {
  constexpr int CHUNKS = COLUMNS / 8;
  uint32_t lo[2 * CHUNKS];
#pragma unroll
  for (int i = 0; i < CHUNKS; i += 2) {
    uint32_t hi[4];
#pragma unroll
    for (int u = 0; u < 2; u++) {
      float x[4];
      value(i + u, x);
      const Split top = split(x[0], x[1]), bottom = split(x[2], x[3]);
      hi[2 * u] = top.hi, hi[2 * u + 1] = bottom.hi;
      lo[2 * (i + u)] = top.lo, lo[2 * (i + u) + 1] = bottom.lo;
    }
    stmatrix_x4(box + swizzle<128>(lane % 16, chunk + i + lane / 16), hi[0], hi[1], hi[2], hi[3]);
  }
  store_box<COLUMNS>(box, to, lane, chunk);
#pragma unroll
  for (int i = 0; i < CHUNKS; i += 2)
    stmatrix_x4(box + swizzle<128>(lane % 16, chunk + i + lane / 16), lo[2 * i], lo[2 * i + 1], lo[2 * i + 2], lo[2 * i + 3]);
  store_box<COLUMNS>(box, to_lo, lane, chunk);
}

// 16 rows x 32 columns of a warp, in accumulator order and times `scale`, into its box.
__device__ __forceinline__ void fill_box(uint32_t box, int lane, const float* v, float scale) {
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int r = 0; r < 2; r++) {
      const float* x = v + 4 * i + 2 * r;
      store_shared_2(box + swizzle<128>(lane / 4 + 8 * r, 2 * i + lane % 4 / 2) + lane % 2 * 8, x[0] * scale, x[1] * scale);
    }
}

}  // namespace exact90
