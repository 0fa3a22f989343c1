/* out(rows, N) fp32 = C + bias + residual, K not split.
   During the main loop a warp copies the residual of its 16 x BN outputs into shared memory, then adds its accumulators in place and stores whole 16-byte
   pieces of rows: `out` and `residual` need no more alignment than that. Nothing crosses a warp. */
#pragma once
#include "common/copy_sm90a.cuh"
#include "gemm/gemm_sm90a.cuh"

template <class S>
struct WholeEpilogue {
  static constexpr Prepared PREPARED = BEFORE_PRODUCTS;
  static constexpr int FETCH_AT = NEVER;
  static constexpr int CLUSTER_PHASES = 0;
  static constexpr int PITCH = (S::BN + 8) * 4;  // bytes of a row: eight rows of pairs fall on different banks
  static constexpr int STAGING = 4 * S::WARPGROUPS * 16 * PITCH;
  static constexpr int SHARED_BYTES = STAGING + S::N * 4;
  static constexpr int GROUPS = S::BN / 32, PIECES = 4 * GROUPS;  // eight lanes take 32 columns of a row, four rows at a time
  static_assert(S::BN % 32 == 0, "whole pieces");

  const float* bias;      // (N)
  const float* residual;  // (rows, N)
  float* out;             // (rows, N)
  int rows;
  uint32_t staging, bias_at, bias_full;

  __device__ WholeEpilogue(const float* bias, const float* residual, float* out, int rows)
      : bias(bias), residual(residual), out(out), rows(rows) {}
  __device__ void at(uint32_t memory, uint32_t barriers, int) {
    staging = memory + threadIdx.x / 32 * (16 * PITCH);
    bias_at = memory + STAGING;
    bias_full = barriers;
  }
  __device__ void init() const { mbarrier_init(bias_full, 1); }
  __device__ void load() const {
    mbarrier_expect(bias_full, S::N * 4);
    bulk_load(bias_at, bias, S::N * 4, bias_full);
  }

  // Piece i of a lane: its row, its place in the staging and in a matrix
  static __device__ int piece_row(int i) { return threadIdx.x % 32 / 8 + i / GROUPS * 4; }
  __device__ uint32_t piece_at(int i) const {
    return staging + piece_row(i) * PITCH + (threadIdx.x % 8 + i % GROUPS * 8) * 16;
  }
  static __device__ size_t piece_offset(int i, int row, int n) {
    return static_cast<size_t>(row + piece_row(i)) * S::N + n + threadIdx.x % 8 * 4 + i % GROUPS * 32;
  }

  __device__ void prepare(int row, int n) const {
    pdl_wait();
    __syncwarp();  // the tile before has been read
#pragma unroll
    for (int i = 0; i < PIECES; i++)
      if (row + piece_row(i) < rows) copy_async_16(piece_at(i), residual + piece_offset(i, row, n));
  }

  __device__ void finish(float (&d)[S::BN / 2], int row, int n) const {
    const int lane = threadIdx.x % 32;
    mbarrier_wait(bias_full, 0);
    copy_async_wait();
    __syncwarp();
    const uint32_t place = staging + lane / 4 * PITCH + lane % 4 * 8, biases = bias_at + (n + 2 * (lane % 4)) * 4;
#pragma unroll
    for (int g = 0; g < S::BN / 8; g++) {
      const float2 b = load_shared_2(biases + 32 * g), x = load_shared_2(place + 32 * g);
      const float2 y = load_shared_2(place + 32 * g + 8 * PITCH);
      store_shared_2(place + 32 * g, d[4 * g] + b.x + x.x, d[4 * g + 1] + b.y + x.y);
      store_shared_2(place + 32 * g + 8 * PITCH, d[4 * g + 2] + b.x + y.x, d[4 * g + 3] + b.y + y.y);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      const float4 v = load_shared_4(piece_at(i));
      if (row + piece_row(i) < rows) *reinterpret_cast<float4*>(out + piece_offset(i, row, n)) = v;
    }
  }
  __device__ void end() const {}
};
