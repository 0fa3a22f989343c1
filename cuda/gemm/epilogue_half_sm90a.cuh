/* out(rows, N) fp16 = act(C + bias), act = identity or tanh GELU.
   A warp turns its 16 x BN accumulators into swizzled 16-row boxes in shared memory and stores them with the copy engine,
   which drops rows past the end; each as soon as it is there, because an SM writes but 16 bytes a clock, and the next kernel
   waits for the last of them. Boxes have memory of their own, so that the ring already fills for the next tile. */
#pragma once
#include "gemm/gemm_sm90a.cuh"

// x * sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3), as x / 2 (1 + tanh u); tanh.approx (PTX ISA 9.0, 9.7.3.22)
// is good to 2^-11
__device__ __forceinline__ float gelu_tanh(float x) {
  const float u = x * fmaf(0.7978845608f * 0.044715f, x * x, 0.7978845608f), half = 0.5f * x;
  float t;
  asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(u));
  return fmaf(half, t, half);
}

template <class S, bool GELU>
struct HalfEpilogue {
  static constexpr bool LATE = false;
  static constexpr int CLUSTER_PHASES = 0;
  static constexpr int COLUMNS = S::BN % 64 == 0 ? 64 : 32;  // of a box
  static constexpr int BOX_BYTES = 16 * COLUMNS * 2;
  static constexpr int BOXES = S::BN / COLUMNS;
  // Boxes whose biases are fetched at once, where there are registers for them: one behind a store would wait for it, and both for wgmma's traffic
  static constexpr int AHEAD = S::BN <= 192 && S::WARPGROUPS < 3 ? BOXES : 1;
  static constexpr int STAGING = 4 * S::WARPGROUPS * BOXES * BOX_BYTES;
  static constexpr int SHARED_BYTES = STAGING + S::N * 4;

  const CUtensorMap* out;
  const float* bias;  // (N)
  uint32_t staging, bias_at, bias_full;
  bool first = true;

  __device__ HalfEpilogue(const CUtensorMap* out, const float* bias) : out(out), bias(bias) {}
  __device__ void at(uint32_t memory, uint32_t barriers, int) {
    staging = memory + threadIdx.x / 32 * (BOXES * BOX_BYTES);
    bias_at = memory + STAGING;
    bias_full = barriers;
  }
  __device__ void init() const {
    prefetch_tensor_map(out);
    mbarrier_init(bias_full, 1);
  }
  __device__ void load() const {
    mbarrier_expect(bias_full, S::N * 4);
    bulk_load(bias_at, bias, S::N * 4, bias_full);
  }
  __device__ void prepare(int, int) const {}

  __device__ void finish(float (&d)[S::BN / 2], int row, int n) {
    const int lane = threadIdx.x % 32, r = lane % 16;
    if (first)
      mbarrier_wait(bias_full, 0);
    else {
      if (elect_one()) bulk_wait_read<0>();
      __syncwarp();
    }
    first = false;
    const uint32_t biases = bias_at + (n + 2 * (lane % 4)) * 4;
    float2 v[AHEAD * COLUMNS / 8];
#pragma unroll
    for (int box = 0; box < BOXES; box++) {
      const uint32_t to = staging + box * BOX_BYTES;
      if (box % AHEAD == 0) {
#pragma unroll
        for (int i = 0; i < AHEAD * COLUMNS / 8; i++) v[i] = load_shared_2(biases + 4 * box * COLUMNS + 32 * i);
      }
#pragma unroll
      for (int i = 0; i < COLUMNS / 8; i += 2) {  // two groups of 8 columns make one stmatrix
        uint32_t h[4];
#pragma unroll
        for (int u = 0; u < 2; u++) {
          const float* c = d + 4 * (box * (COLUMNS / 8) + i + u);
          const float2 b = v[box % AHEAD * (COLUMNS / 8) + i + u];
          float x[4] = {c[0] + b.x, c[1] + b.y, c[2] + b.x, c[3] + b.y};
          if (GELU)
            for (float& e : x) e = gelu_tanh(e);
          h[2 * u] = pack_half2(x[0], x[1]);
          h[2 * u + 1] = pack_half2(x[2], x[3]);
        }
        const uint32_t chunk = i + lane / 16;
        stmatrix_x4(to + (COLUMNS == 64 ? swizzle_128(r, chunk) : swizzle_64(r, chunk)), h[0], h[1], h[2], h[3]);
      }
      fence_async_shared();
      __syncwarp();
      if (elect_one()) tma_store_2d(out, to, n + box * COLUMNS, row);
    }
    if (elect_one()) bulk_commit();
  }
  __device__ void end() const {
    if (elect_one()) bulk_wait_read<0>();
  }
};
