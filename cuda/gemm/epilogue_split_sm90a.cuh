/* out(rows, N) fp32 = sum over the cluster's blocks of C + bias + residual.
   The SPLITS blocks of a cluster hold sums over different parts of K for one tile. Each sends columns W p .. W p + W (W
   = BN / SPLITS) to block p, which adds them in the order of the ranks (the same bits every time) and stores whole
   16-byte pieces of rows: `out` and `residual` need no more alignment than that, and out is touched by nobody else. A
   warpgroup waits only for the same 64 rows of its peers. */
#pragma once
#include "gemm/gemm_sm90a.cuh"

template <class S>
struct SplitEpilogue {
  static constexpr int W = S::BN / S::SPLITS;
  static constexpr int PITCH = (W + 8) * 4;  // bytes of a row: eight rows of pairs fall on different banks
  static constexpr int SLOT = 64 * PITCH;    // from one block
  static constexpr int SHARED_BYTES = S::WARPGROUPS * S::SPLITS * SLOT;
  static constexpr int PIECES = W / 8;    // 16-byte pieces per thread: 64 x W floats by 128 threads
  static constexpr bool EARLY = W <= 48;  // room to hold the residual during the main loop
  static constexpr int BATCH = PIECES < 6 ? PIECES : 6;

  const float* bias;      // (N)
  const float* residual;  // (rows, N)
  float* out;             // (rows, N)
  int rows;
  uint32_t slots, received;
  int rank;
  float4 extra[EARLY ? PIECES : BATCH];

  __device__ SplitEpilogue(const float* bias, const float* residual, float* out, int rows)
      : bias(bias), residual(residual), out(out), rows(rows) {}
  __device__ void at(uint32_t memory, uint32_t barriers, int r) {
    slots = memory + threadIdx.x / 128 * (S::SPLITS * SLOT);
    received = barriers + threadIdx.x / 128 * 8;
    rank = r;
    if (threadIdx.x >= 128 * S::WARPGROUPS) received = barriers;
  }
  __device__ void init() const {
    if (S::SPLITS > 1)
      for (int w = 0; w < S::WARPGROUPS; w++) {
        mbarrier_init(received + 8 * w, 1);
        mbarrier_expect(received + 8 * w, 64 * S::BN * 4);
      }
  }
  __device__ void load() const {}

  // Piece i of a thread: row and first column of four within the 64 x W part
  static __device__ int piece_row(int i) { return (i * 128 + threadIdx.x % 128) / (W / 4); }
  static __device__ int piece_column(int i) { return (i * 128 + threadIdx.x % 128) % (W / 4) * 4; }

  __device__ float4 addend(int i, int row64, int n) const {
    const int row = row64 + piece_row(i), column = n + rank * W + piece_column(i);
    float4 v = __ldg(reinterpret_cast<const float4*>(bias + column));
    if (row < rows) {
      const float4 r = __ldcg(reinterpret_cast<const float4*>(residual + static_cast<size_t>(row) * S::N + column));
      v = make_float4(v.x + r.x, v.y + r.y, v.z + r.z, v.w + r.w);
    }
    return v;
  }
  __device__ void prepare(int row, int n) {
    if constexpr (EARLY) {
      pdl_wait();
#pragma unroll
      for (int i = 0; i < PIECES; i++) extra[i] = addend(i, row & ~63, n);
    }
  }

  __device__ void finish(float (&d)[S::BN / 2], int row, int n) {
    const int lane = threadIdx.x % 32, row64 = row & ~63;
    const uint32_t mine = slots + rank * SLOT + (row % 64 + lane / 4) * PITCH + 8 * (lane % 4);
    if (S::SPLITS > 1)
      cluster_wait();  // every block of the cluster has its barriers
    else
      named_barrier_sync(3 + threadIdx.x / 128, 128);  // the tile before has been read
#pragma unroll
    for (int p = 0; p < S::SPLITS; p++) {
      const uint32_t to = S::SPLITS > 1 ? cluster_address(mine, p) : mine,
                     barrier = S::SPLITS > 1 ? cluster_address(received, p) : 0;
#pragma unroll
      for (int i = 0; i < W / 8; i++) {
        const float* v = d + 4 * (p * (W / 8) + i);
        if (S::SPLITS > 1) {
          cluster_store_2(to + 32 * i, v[0], v[1], barrier);
          cluster_store_2(to + 32 * i + 8 * PITCH, v[2], v[3], barrier);
        } else {
          store_shared_2(to + 32 * i, v[0], v[1]);
          store_shared_2(to + 32 * i + 8 * PITCH, v[2], v[3]);
        }
      }
    }
    if (S::SPLITS > 1)
      mbarrier_wait(received, 0);
    else {
      pdl_wait();
      named_barrier_sync(3 + threadIdx.x / 128, 128);
    }
    if constexpr (EARLY) {
#pragma unroll
      for (int i = 0; i < PIECES; i++) store_sum(i, extra[i], row64, n);
    } else {
#pragma unroll 1
      for (int i = 0; i < PIECES; i += BATCH) {
#pragma unroll
        for (int j = 0; j < BATCH; j++) extra[j] = addend(i + j, row64, n);
#pragma unroll
        for (int j = 0; j < BATCH; j++) store_sum(i + j, extra[j], row64, n);
      }
    }
  }

  __device__ void store_sum(int i, float4 sum, int row64, int n) const {
    const uint32_t from = slots + piece_row(i) * PITCH + piece_column(i) * 4;
    float4 v = load_shared_4(from);
#pragma unroll
    for (int p = 1; p < S::SPLITS; p++) {
      const float4 u = load_shared_4(from + p * SLOT);
      v = make_float4(v.x + u.x, v.y + u.y, v.z + u.z, v.w + u.w);
    }
    sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
    if (row64 + piece_row(i) < rows)
      *reinterpret_cast<float4*>(out + static_cast<size_t>(row64 + piece_row(i)) * S::N + n + rank * W +
                                 piece_column(i)) = sum;
  }
  __device__ void end() const {}
};
