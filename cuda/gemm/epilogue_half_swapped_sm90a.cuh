/* out(rows, N) fp16 = act(C + bias), or act(factor C + bias) with a factor for each row, for swapped tiles, of which a thread has two columns and pairs of
   rows. stmatrix turns them as it stores them. The four warps of a warpgroup fill boxes of 64 columns together, and the copy engine stores each as soon as it
   is there. As HalfEpilogue otherwise. */
#pragma once
#include "gemm/epilogue_half_sm90a.cuh"

template <class S, bool GELU, Biases BIASED = WITH_BIAS, bool LONGEST = false>
struct SwappedHalfEpilogue : GemmEpilogue {
  static_assert(BIASED != WITHOUT_BIAS, "which no swapped tile has");
  static constexpr bool BEGINS = BIASED == WITH_BIAS, HELPED = BIASED == UNSCALED;
  static constexpr int BOXES = S::BM % 32 == 0 ? 2 : S::BM % 48 == 0 ? 3 : 1, HIGH = S::BM / BOXES, BOX_BYTES = HIGH * 128;
  static constexpr int FACTORS = S::WARPGROUPS * BOXES * BOX_BYTES;
  static constexpr int SHARED_BYTES = FACTORS + (HELPED ? 4 * S::BM : 0);
  static constexpr int BOX_BARRIER = LEAD_BARRIER + S::WARPGROUPS;  // and one more for each warpgroup after the first
  static_assert(S::SWAPPED && S::BM % BOXES == 0 && HIGH % 16 == 0, "boxes of whole stmatrix");

  const CUtensorMap* out;  // boxes of 64 x HIGH
  const float* bias;       // (N)
  int rows;
  RowScaling scaling = {nullptr, nullptr, 0};
  const LongestRows* longest;  // an argument of the kernel, so that it takes no registers
  uint32_t boxes, factors, found, taken, parity = 0;
  bool first = true;
  float biases[2];  // of columns lane / 4 and lane / 4 + 8

  __device__ SwappedHalfEpilogue(const CUtensorMap* out, const float* bias, int rows) : out(out), bias(bias), rows(rows) {}

  __device__ void at(uint32_t memory, uint32_t barriers, int) {
    boxes = memory + threadIdx.x / 128 * (BOXES * BOX_BYTES);
    factors = memory + FACTORS;
    found = barriers;
    taken = barriers + 8;
  }
  __device__ void init() const {
    prefetch_tensor_map(out);
    if (HELPED) {  // every thread arrives: racecheck takes an arrival for that thread's own accesses only
      mbarrier_init(found, 32);
      mbarrier_init(taken, 128 * S::WARPGROUPS);
    }
  }
  __device__ void load() const {}
  __device__ void prepare(int, int n) {
    const float* b = bias + n + threadIdx.x % 32 / 4;
    biases[0] = load_input(b);
    biases[1] = load_input(b + 8);
  }
  __device__ void begin(float (&d)[S::SUMS], int) const {
#pragma unroll
    for (int i = 0; i < S::SUMS; i++) d[i] = biases[i / 2 % 2];
  }

  __device__ void help(int row, int) {
    constexpr int EACH = (S::BM + 31) / 32;
    const int lane = threadIdx.x % 32;
    float factor[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) factor[i] = row_factor(scaling, min(row + 32 * i + lane, rows - 1));
    mbarrier_wait(taken, parity ^ 1);
#pragma unroll
    for (int i = 0; i < EACH; i++)
      if (32 * i + lane < S::BM) store_shared(factors + (32 * i + lane) * 4, factor[i]);
    mbarrier_arrive(found);
    parity ^= 1;
  }

  __device__ void finish(float (&d)[S::SUMS], int row, int n) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool sends = warp % 4 == 0 && elect_one();
    if (HELPED) {
      mbarrier_wait(found, parity);
      parity ^= 1;
    }
    if (!first) {
      if (sends) bulk_wait_read<0>();
      meet();
    }
    first = false;
    // The lane's row of a matrix: eight rows of out, 16 bytes each
    const uint32_t to = boxes + swizzle<128>(lane / 16 * 8 + lane % 8, warp % 4 * 2 + lane / 8 % 2);
#pragma unroll
    for (int box = 0; box < BOXES; box++) {
#pragma unroll
      for (int i = 0; i < HIGH / 8; i += 2) {
        uint32_t h[4];
#pragma unroll
        for (int u = 0; u < 2; u++) turn(d + 4 * (box * (HIGH / 8) + i + u), box * HIGH + 8 * (i + u), h[2 * u], h[2 * u + 1]);
        stmatrix_x4_transposed(to + box * BOX_BYTES + i * 1024, h[0], h[1], h[2], h[3]);
      }
      fence_async_shared();
      meet();
      if (sends) tma_store_2d(out, boxes + box * BOX_BYTES, n, row + box * HIGH);
    }
    if (sends) bulk_commit();
    if (HELPED) mbarrier_arrive(taken);  // behind the factors' use: a load may still be on its way
    // While the boxes leave. One lies behind the other, so that any 16 rows are a box of 16, with all columns of the warpgroup.
    if (LONGEST && longest->squares != nullptr && n < 2 * D)
      for (int r = warp % 4 * 16; r < S::BM; r += 64) longest->measure<64, 1>(boxes + r * 128, row + r, n / 64 * 64);
  }

  // A group of eight rows, of the tile the one `row` and on: those of the lane's first column, and of its second
  __device__ void turn(const float* d, int row, uint32_t& low, uint32_t& high) const {
    float x[4] = {d[0], d[1], d[2], d[3]};
    if (BIASED == UNSCALED) {
      const float2 factor = load_shared_2(factors + (row + threadIdx.x % 4 * 2) * 4);
#pragma unroll
      for (int i = 0; i < 4; i++) x[i] = fmaf(x[i], i % 2 == 0 ? factor.x : factor.y, biases[i / 2]);
    }
    if (GELU)
      for (float& e : x) e = gelu_tanh(e);
    low = pack_half2(x[0], x[1]);
    high = pack_half2(x[2], x[3]);
  }
  // The warps of a warpgroup
  static __device__ void meet() { named_barrier_sync(BOX_BARRIER + threadIdx.x / 128, 128); }
  __device__ void end() const {
    if (elect_one()) bulk_wait_read<0>();
  }
};
