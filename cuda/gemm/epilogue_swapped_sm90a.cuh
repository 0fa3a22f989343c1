/* out(rows, N) fp32 = C + bias + residual, for swapped tiles, of which a thread has two columns and pairs of rows. The sums begin with the bias. When the ring
   needs stages no more, the residual comes into them in boxes of 32 columns, two for each slab of 64 that the block finishes; the sums are added to it there,
   and the copy engine stores them. `residual` may be the memory of `out`, which nobody else touches.
   Of a halved tile a block finishes one slab. The first warpgroup has the other one, and writes its sums into the peer's shared memory as its lanes have them,
   while the second one still multiplies. */
#pragma once
#include "gemm/gemm_sm90a.cuh"

template <class S>
struct SwappedEpilogue : GemmEpilogue {
  static constexpr bool BEGINS = true;
  static constexpr int CLUSTER_PHASES = S::HALVED ? 1 : 0;
  static constexpr int BOX_BARRIER = LEAD_BARRIER + S::WARPGROUPS;  // and one more for each box after the first
  static constexpr int BOX = S::BM * 128, GROUPS = S::BM / 8;       // of eight rows
  static constexpr int BOXES = 2 * BOX <= S::STAGE_BYTES ? 2 : 1;   // in a stage
  static constexpr int FINISHERS = S::HALVED ? 1 : S::WARPGROUPS;
  static constexpr int FETCHES = 2 * FINISHERS / BOXES;
  static constexpr int SHARED_BYTES = S::HALVED ? 2 * BOX : 0;  // for the peer's sums
  static_assert(S::SWAPPED && BOX <= S::STAGE_BYTES && FETCHES <= S::STAGES, "stages for all boxes");

  const CUtensorMap *residual, *out;  // boxes of 32 x BM
  const float* bias;                  // (N)
  uint32_t ring, parts, full, received;
  int part;

  __device__ SwappedEpilogue(const CUtensorMap* residual, const CUtensorMap* out, const float* bias) : residual(residual), out(out), bias(bias) {}

  __device__ void at(uint32_t memory, uint32_t after_ring, int p) {
    ring = memory - S::STAGES * S::STAGE_BYTES;
    parts = memory;
    full = after_ring;
    received = after_ring + 8 * FINISHERS;
    part = p;
  }
  __device__ void init() const {
    for (int w = 0; w < FINISHERS; w++) mbarrier_init(full + 8 * w, 2 / BOXES);
    if (S::HALVED) {
      mbarrier_init(received, 1);
      mbarrier_expect(received, SHARED_BYTES);
    }
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
    for (int box = i * BOXES; box < (i + 1) * BOXES; box++) tma_load_2d(box_at(box), residual, n + 64 * part + 32 * box, row, barrier);
  }
  static __device__ bool sends() { return S::HALVED && threadIdx.x < 128; }
  __device__ void begin(float (&d)[S::SUMS], int n) const {
    const float* b = bias + n + threadIdx.x % 32 / 4;
    const float first = sends() ? 0 : load_input(b), second = sends() ? 0 : load_input(b + 8);
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
      d[4 * g] = d[4 * g + 1] = first;
      d[4 * g + 2] = d[4 * g + 3] = second;
    }
  }

  __device__ uint32_t part_at(int group) const { return parts + 2048 * group + threadIdx.x % 128 * 16; }
  __device__ void send(const float (&d)[S::SUMS]) const {
    const uint32_t peer = cluster_rank() ^ (S::CLUSTER / 2), barrier = cluster_address(received, peer), to = cluster_address(part_at(0), peer);
#pragma unroll
    for (int g = 0; g < GROUPS; g++) cluster_store_4(to + 2048 * g, make_float4(d[4 * g], d[4 * g + 1], d[4 * g + 2], d[4 * g + 3]), barrier);
  }
  __device__ void receive(float (&d)[S::SUMS]) const {
    cluster_wait_or_fault(received, 0);
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
      const float4 other = load_shared_4(part_at(g));
      d[4 * g] += other.x;
      d[4 * g + 1] += other.y;
      d[4 * g + 2] += other.z;
      d[4 * g + 3] += other.w;
    }
  }

  __device__ void finish(float (&d)[S::SUMS], int row, int n) const {
    if (S::HALVED) {
      cluster_wait();  // the peer has its barriers
      if (sends()) return send(d);
    }
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - (S::HALVED ? 4 : 0);
    const uint32_t box = box_at(warp / 2);
    // Of group 0, register by register: eight columns of four rows, on as many banks
    uint32_t place[4];
#pragma unroll
    for (int r = 0; r < 4; r++) place[r] = box + swizzle<128>(lane % 4 * 2 + r % 2, warp % 2 * 4 + r / 2 * 2 + lane / 16) + lane / 4 % 4 * 4;
    mbarrier_wait(full + 8 * (warp / 4), 0);
#pragma unroll
    for (int i = 0; i < S::SUMS; i++) d[i] += load_shared(place[i % 4] + i / 4 * 1024);
    if (S::HALVED) receive(d);
#pragma unroll
    for (int i = 0; i < S::SUMS; i++) store_shared(place[i % 4] + i / 4 * 1024, d[i]);
    fence_async_shared();
    named_barrier_sync(BOX_BARRIER + warp / 2, 64);
    if (warp % 2 == 0 && elect_one()) {
      tma_store_2d(out, box, n, row);
      bulk_commit();
    }
  }
  __device__ void end() const {
    if (elect_one()) bulk_wait_read<0>();
  }
};
