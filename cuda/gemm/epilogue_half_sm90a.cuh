/* out(rows, N) fp16 = act(C + bias), act = identity or tanh GELU; or act(factor C + bias), with a factor for each row, which a warp of its own finds out
   while the others multiply.
   A warp turns its 16 x BN accumulators into swizzled 16-row boxes in shared memory and stores them with the copy engine,
   which drops rows past the end; each as soon as it is there, because an SM writes but 16 bytes a clock, and the next kernel
   waits for the last of them. Boxes have memory of their own, so that the ring already fills for the next tile. */
#pragma once
#include <cuda_fp16.h>

#include "gemm/gemm_sm90a.cuh"
#include "gemm/longest_rows_sm90a.cuh"
#include "gemm/row_facts_sm90a.cuh"

// x * sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3), as x / 2 (1 + tanh u); tanh.approx (PTX ISA 9.0, 9.7.3.22)
// is good to 2^-11
__device__ __forceinline__ float gelu_tanh(float x) {
  const float u = x * fmaf(0.7978845608f * 0.044715f, x * x, 0.7978845608f), half = 0.5f * x;
  float t;
  asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(u));
  return fmaf(half, t, half);
}

// What finish() gets: C + bias, or C to which it adds the biases, or C that it scales first
enum Biases { WITH_BIAS, WITHOUT_BIAS, UNSCALED };

template <class S, bool GELU, Biases BIASED = WITH_BIAS, bool LONGEST = false>
struct HalfEpilogue : GemmEpilogue {
  static constexpr bool BEGINS = BIASED == WITH_BIAS, HELPED = BIASED == UNSCALED;
  static constexpr int COLUMNS = S::BN % 64 == 0 || S::TRANSPOSED ? 64
                                 : S::BN % 32 == 0                ? 32
                                                                  : 16;  // of a box; those of 16 lie as they are
  static constexpr int BOX_BYTES = 16 * COLUMNS * 2;
  static constexpr int BOXES = S::BN / COLUMNS;
  static constexpr int REST = S::BN % COLUMNS;  // columns of the narrow box of a transposed tile
  // Biases that are not in the sums: all boxes' are fetched at once where there are registers for them, because one behind a store would wait for it; and
  // before the products where they are scaled.
  static constexpr int AHEAD = BEGINS ? 0 : S::BN <= 192 && S::BM <= 128 ? BOXES : 1;
  static constexpr bool HOLDS_BIASES = HELPED && AHEAD == BOXES;
  static constexpr int RESTS = 4 * S::WARPGROUPS * BOXES * BOX_BYTES, STAGING = RESTS + 4 * S::WARPGROUPS * 32 * REST;
  // Where there is no room for all biases: those of one tile, which come with the rows' factors; without factors none, they are read where they lie
  static constexpr bool FULL = S::BM == 192 && S::N == FFN, HELPS_BIASES = FULL && HELPED, UNSTAGED = FULL && !HELPED;
  static constexpr int BIASES = UNSTAGED ? 0 : FULL ? S::BN : S::N;
  static constexpr int FACTORS = STAGING + BIASES * 4;
  static constexpr int SHARED_BYTES = FACTORS + (HELPED ? 4 * S::BM : 0);
  static_assert(BEGINS || REST == 0);

  const CUtensorMap *out, *rest_out;
  const float* bias;  // (N)
  uint32_t staging, rest, bias_at, bias_full, factors;
  uint32_t found, taken, parity = 0;  // barriers of the factors, and the parity of this tile's phase
  RowScaling scaling = {nullptr, nullptr, 0};
  bool unstaged = UNSTAGED;  // the biases are read where they lie, aligned to 4 bytes
  bool first = true;
  float2 v[AHEAD * COLUMNS / 8 + 1];  // biases
  const LongestRows* longest;  // an argument of the kernel, so that it takes no registers

  __device__ HalfEpilogue(const CUtensorMap* out, const float* bias, const CUtensorMap* rest_out = nullptr) : out(out), rest_out(rest_out), bias(bias) {}
  __device__ void at(uint32_t memory, uint32_t barriers, int) {
    staging = memory + threadIdx.x / 32 * (BOXES * BOX_BYTES);
    rest = memory + RESTS + threadIdx.x / 32 * (32 * REST);
    bias_at = memory + STAGING;
    factors = memory + FACTORS;
    bias_full = barriers;
    found = barriers + 8;
    taken = barriers + 16;
  }
  __device__ void init() const {
    prefetch_tensor_map(out);
    if (REST > 0) prefetch_tensor_map(rest_out);
    mbarrier_init(bias_full, 1);
    if (HELPED) {  // every thread arrives: racecheck takes an arrival for that thread's own accesses only
      mbarrier_init(found, 32);
      mbarrier_init(taken, 128 * S::WARPGROUPS);
    }
  }
  __device__ void load() const {
    if (unstaged || HELPS_BIASES) return;
    mbarrier_expect(bias_full, BIASES * 4);
    bulk_load(bias_at, bias, BIASES * 4, bias_full);
  }
  // A transposed tile's columns are not neighbours (gemm/transposed_sm90a.cuh).
  static __device__ int wide(int n) { return REST == 0 ? n : n / S::BN * (BOXES * COLUMNS); }
  static __device__ int narrow(int n) { return S::N_TILES * BOXES * COLUMNS + n / S::BN * REST; }

  __device__ void prepare(int, int n) {
    if (HOLDS_BIASES) fetch_biases(n, 0);
  }
  __device__ void begin(float (&d)[S::BN / 2], int n) const {
    if (unstaged) return begin_with_input<S::BN / 8>(bias + n + threadIdx.x % 4 * 2, d);
    mbarrier_wait_or_fault(bias_full, 0);
    begin_with<BOXES * COLUMNS / 8>(biases(FULL ? 0 : wide(n)), d);
    begin_with<REST / 8>(biases(narrow(n)), d + 4 * BOXES * (COLUMNS / 8));
  }
  // The lane's first pair of those from a column on
  __device__ uint32_t biases(int column) const { return bias_at + (column + threadIdx.x % 4 * 2) * 4; }
  __device__ void fetch_biases(int n, int box) {
    if (!HELPS_BIASES) mbarrier_wait_or_fault(bias_full, 0);  // a trap here would make ptxas wait for the products first (C7517)
#pragma unroll
    for (int i = 0; i < AHEAD * COLUMNS / 8; i++) v[i] = load_shared_2(biases((FULL ? 0 : n) + box * COLUMNS + 8 * i));
  }

  __device__ void help(int row, int n) {
    constexpr int PAIRS = HELPS_BIASES ? S::BN / 64 : 0;  // of biases, a lane's
    const int lane = threadIdx.x % 32;
    float factor[S::BM / 32];
    float2 pair[PAIRS + 1];
#pragma unroll
    for (int i = 0; i < PAIRS; i++) pair[i] = reinterpret_cast<const float2*>(bias + n)[32 * i + lane];
#pragma unroll
    for (int i = 0; i < S::BM / 32; i++) factor[i] = row_factor(scaling, row + 32 * i + lane);
    mbarrier_wait(taken, parity ^ 1);
#pragma unroll
    for (int i = 0; i < PAIRS; i++) store_shared_2(bias_at + (32 * i + lane) * 8, pair[i].x, pair[i].y);
#pragma unroll
    for (int i = 0; i < S::BM / 32; i++) store_shared(factors + (32 * i + lane) * 4, factor[i]);
    mbarrier_arrive(found);
    parity ^= 1;
  }
  __device__ void take_factors(float (&factor)[2]) {
    mbarrier_wait(found, parity);
#pragma unroll
    for (int u = 0; u < 2; u++) factor[u] = load_shared(factors + (threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * u) * 4);
    parity ^= 1;
  }

  __device__ void finish(float (&d)[S::BN / 2], int row, int n) {
    const int lane = threadIdx.x % 32, r = lane % 16;
    float factor[2];  // of rows lane / 4 and lane / 4 + 8
    if (HELPED) take_factors(factor);
    if (!BEGINS && !HOLDS_BIASES) fetch_biases(n, 0);
    if (!first) {
      if (elect_one()) bulk_wait_read<0>();
      __syncwarp();
    }
    first = false;
#pragma unroll
    for (int box = 0; box < BOXES; box++) {
      const uint32_t to = staging + box * BOX_BYTES;
      if (!BEGINS && AHEAD < BOXES && box > 0) fetch_biases(n, box);
#pragma unroll
      for (int i = 0; i < COLUMNS / 8; i += 2) {  // two groups of 8 columns make one stmatrix
        const uint32_t chunk = i + lane / 16;
        const float2* b = BEGINS ? nullptr : v + box % max(AHEAD, 1) * (COLUMNS / 8) + i;
        turn(factor, d + 4 * (box * (COLUMNS / 8) + i), b,
             to + (COLUMNS == 16 ? r * 32 + chunk * 16 : swizzle<2 * COLUMNS>(r, chunk)));
      }
      store(out, to, wide(n) + box * COLUMNS, row);
    }
    if constexpr (REST > 0) {
      turn(factor, d + 4 * BOXES * (COLUMNS / 8), nullptr, rest + r * 32 + lane / 16 * 16);
      store(rest_out, rest, narrow(n), row);
    }
    if (elect_one()) bulk_commit();
    if (HELPED) mbarrier_arrive(taken);  // behind the factors' use: a load may still be on its way
    static_assert(!LONGEST || D % (BOXES * COLUMNS) == 0, "Q, K and V have tiles of their own");
    if (LONGEST && longest->squares != nullptr && wide(n) < 2 * D) longest->measure<COLUMNS, BOXES>(staging, row, wide(n));  // while the boxes leave
  }

  // Two groups of 8 columns, of which `to` is the lane's row of a matrix
  __device__ static void turn(const float (&factor)[2], const float* d, const float2* bias, uint32_t to) {
    uint32_t h[4];
#pragma unroll
    for (int u = 0; u < 2; u++) {
      const float* c = d + 4 * u;
      float x[4] = {c[0], c[1], c[2], c[3]};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (BIASED == WITHOUT_BIAS) x[i] += i % 2 == 0 ? bias[u].x : bias[u].y;
        if (BIASED == UNSCALED) x[i] = fmaf(x[i], factor[i / 2], i % 2 == 0 ? bias[u].x : bias[u].y);
      }
      if (GELU)
        for (float& e : x) e = gelu_tanh(e);
      h[2 * u] = pack_half2(x[0], x[1]);
      h[2 * u + 1] = pack_half2(x[2], x[3]);
    }
    stmatrix_x4(to, h[0], h[1], h[2], h[3]);
  }
  __device__ static void store(const CUtensorMap* map, uint32_t from, int column, int row) {
    fence_async_shared();
    __syncwarp();
    if (elect_one()) tma_store_2d(map, from, column, row);
  }
  __device__ void end() const {
    if (elect_one()) bulk_wait_read<0>();
  }
};
