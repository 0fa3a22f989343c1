/* out(rows, N) fp32 = C + bias + residual, for swapped tiles, of which a thread has two columns and pairs of rows. The sums begin with the bias. When the ring
   needs stages no more, the residual comes into them in boxes of 32 columns, two for each warpgroup; the sums are added to it there, and the copy engine
   stores them. `residual` may be the memory of `out`, which nobody else touches. */
#pragma once
#include "gemm/gemm_sm90a.cuh"

template <class S>
struct SwappedEpilogue : GemmEpilogue {
  static constexpr bool BEGINS = true;
  static constexpr int BOX_BARRIER = LEAD_BARRIER + S::WARPGROUPS;  // and one more for each box after the first
  static constexpr int SHARED_BYTES = 0, BOX = S::BM * 128, GROUPS = S::BM / 8;  // of eight rows
  static constexpr int BOXES = 2 * BOX <= S::STAGE_BYTES ? 2 : 1;                // in a stage
  static constexpr int FETCHES = 2 * S::WARPGROUPS / BOXES;
  static_assert(S::SWAPPED && BOX <= S::STAGE_BYTES && FETCHES <= S::STAGES, "stages for all boxes");

  const CUtensorMap *residual, *out;  // boxes of 32 x BM
  const float* bias;                  // (N)
  uint32_t ring, full;

  __device__ SwappedEpilogue(const CUtensorMap* residual, const CUtensorMap* out, const float* bias) : residual(residual), out(out), bias(bias) {}

  __device__ void at(uint32_t memory, uint32_t after_ring, int) {
    ring = memory - S::STAGES * S::STAGE_BYTES;
    full = after_ring;
  }
  __device__ void init() const {
    for (int w = 0; w < S::WARPGROUPS; w++) mbarrier_init(full + 8 * w, 2 / BOXES);
    prefetch_tensor_map(residual);
    prefetch_tensor_map(out);
  }
  __device__ void load() const {}
  __device__ void prepare(int, int) const {}
  // They go where the ring is free first
  __device__ uint32_t box_at(int box) const { return ring + (S::K_BLOCKS + box / BOXES) % S::STAGES * S::STAGE_BYTES + box % BOXES * BOX; }
  __device__ void fetch(int i, int row, int n) const {
    const uint32_t barrier = full + 8 * (i * BOXES / 2);
    mbarrier_expect(barrier, BOXES * BOX);
    for (int box = i * BOXES; box < (i + 1) * BOXES; box++) tma_load_2d(box_at(box), residual, n + 32 * box, row, barrier);
  }
  __device__ void begin(float (&d)[S::SUMS], int n) const {
    const float* b = bias + n + threadIdx.x % 32 / 4;
    const float first = load_input(b), second = load_input(b + 8);
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
      d[4 * g] = d[4 * g + 1] = first;
      d[4 * g + 2] = d[4 * g + 3] = second;
    }
  }

  __device__ void finish(float (&d)[S::SUMS], int row, int n) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t box = box_at(warp / 2);
    // Of group 0, register by register: eight columns of four rows, on as many banks
    uint32_t place[4];
#pragma unroll
    for (int r = 0; r < 4; r++) place[r] = box + swizzle_128(lane % 4 * 2 + r % 2, warp % 2 * 4 + r / 2 * 2 + lane / 16) + lane / 4 % 4 * 4;
    mbarrier_wait(full + 8 * (warp / 4), 0);
#pragma unroll
    for (int i = 0; i < S::SUMS; i++) d[i] += load_shared(place[i % 4] + i / 4 * 1024);
#pragma unroll
    for (int i = 0; i < S::SUMS; i++) store_shared(place[i % 4] + i / 4 * 1024, d[i]);
    fence_async_shared();
    named_barrier_sync(BOX_BARRIER + warp / 2, 64);
    if (warp % 2 == 0 && elect_one()) {
      tma_store_2d(out, box, n - warp * 16 + warp / 2 * 32, row);
      bulk_commit();
    }
  }
  __device__ void end() const {
    if (elect_one()) bulk_wait_read<0>();
  }
};
