/* out(rows, N) fp32 = sum over the cluster's blocks of C + bias + residual.
   The SPLITS blocks of a cluster hold sums over different parts of K for one tile. Each lays its tile down in SPLITS parts of W = BN / SPLITS columns and
   copies part p into block p, which adds what it received in the order of the ranks (the same bits every time) and stores whole 16-byte pieces of rows:
   `out` and `residual` need no more alignment than that, and `out` is touched by nobody else. A warpgroup waits only for the same 64 rows of its peers.
   (Stores of 8 bytes into a peer's memory instead of bulk copies: 4 us more at 128 x 96.) */
#pragma once
#include "common/copy_sm90a.cuh"
#include "gemm/gemm_sm90a.cuh"

template <class S>
struct SplitEpilogue {
  static constexpr int CLUSTER_PHASES = 2;
  static_assert(S::SPLITS > 1, "parts of K");
  static constexpr int W = S::BN / S::SPLITS;
  static constexpr int PITCH = (W + (W == 8 ? 4 : 8)) * 4;  // bytes of a row: at most two pairs of eight rows fall on the same bank
  static constexpr int PART = 64 * PITCH;    // what one warpgroup has of W columns
  static constexpr int PEERS = S::SPLITS - 1;
  static constexpr int INCOMING = S::WARPGROUPS * PEERS * PART, OUTGOING = S::WARPGROUPS * S::SPLITS * PART;
  static constexpr bool IN_RING = S::STAGES * S::STAGE_BYTES + INCOMING + OUTGOING > S::SHARED_LIMIT;  // outgoing parts take the place of the ring
  static constexpr int SHARED_BYTES = INCOMING + (IN_RING ? 0 : OUTGOING);
  static_assert(!IN_RING || OUTGOING <= S::STAGES * S::STAGE_BYTES, "the ring holds the outgoing parts");
  // 16-byte pieces: ACROSS threads share a row, DOWN rows go at a time
  static constexpr int ACROSS = W % 32 == 0 ? 8 : W / 4, DOWN = 128 / ACROSS;
  static constexpr int GROUPS = W / (4 * ACROSS), PIECES = 64 / DOWN * GROUPS;
  // ask for the residual before the main loop; for larger parts it would hold up the first tiles, and the exchange hides it
  static constexpr bool EARLY = W <= 16;
  static constexpr int BATCH = PIECES <= 12 ? PIECES : 6;

  const float* bias;      // (N)
  const float* residual;  // (rows, N)
  float* out;             // (rows, N)
  int rows;
  uint32_t incoming, outgoing, received;
  int rank;
  float4 extra[BATCH];  // of the residual

  __device__ SplitEpilogue(const float* bias, const float* residual, float* out, int rows) : bias(bias), residual(residual), out(out), rows(rows) {}
  __device__ void at(uint32_t memory, uint32_t barriers, int r) {
    const int warpgroup = threadIdx.x / 128 % S::WARPGROUPS;
    incoming = memory + warpgroup * (PEERS * PART);
    outgoing = (IN_RING ? memory - S::STAGES * S::STAGE_BYTES : memory + INCOMING) + warpgroup * (S::SPLITS * PART);
    received = barriers + warpgroup * 8;
    rank = r;
  }
  __device__ void init() const {  // by a thread whose `received` is the first warpgroup's
    for (int w = 0; w < S::WARPGROUPS; w++) {
      mbarrier_init(received + 8 * w, 1);
      mbarrier_expect(received + 8 * w, PEERS * PART);
    }
  }
  __device__ void load() const {}

  // Row and first column of a thread's piece i
  static_assert(W % (4 * ACROSS) == 0 && 64 % DOWN == 0 && BATCH % GROUPS == 0 && PIECES % BATCH == 0, "whole pieces");
  static __device__ int piece_row(int i) { return threadIdx.x % 128 / ACROSS + i / GROUPS * DOWN; }
  static __device__ int piece_column(int i) { return (threadIdx.x % ACROSS + i % GROUPS * ACROSS) * 4; }

  __device__ void load_residual(int first, int row64, int n) {
    const float* from = residual + static_cast<size_t>(row64 + piece_row(first)) * S::N + n + rank * W + piece_column(0);
#pragma unroll
    for (int j = 0; j < BATCH; j++)
      if (row64 + piece_row(first + j) < rows)
        extra[j] = load_here_4(from + j / GROUPS * DOWN * S::N + j % GROUPS * ACROSS * 4);
  }
  __device__ void prepare(int row, int n) {
    pdl_wait();
    if (EARLY) load_residual(0, row & ~63, n);
  }

  __device__ void finish(float (&d)[S::BN / 2], int row, int n) {
    const int row64 = row & ~63, barrier = 3 + threadIdx.x / 128;
    if (IN_RING) named_barrier_sync(5, 128 * S::WARPGROUPS);  // all warpgroups have left the ring
    lay_down(d, row);
    if (!EARLY) load_residual(0, row64, n);
    float4 biases[GROUPS];
#pragma unroll
    for (int j = 0; j < GROUPS; j++) biases[j] = load_here_4(bias + n + rank * W + piece_column(j));
    fence_async_shared();
    cluster_wait();  // every block of the cluster has its barriers
    named_barrier_sync(barrier, 128);
    if (threadIdx.x % 128 == 0) {
#pragma unroll
      for (int i = 1; i < S::SPLITS; i++) {
        const int to = (rank + i) % S::SPLITS;
        cluster_copy(cluster_address(incoming + slot(rank, to) * PART, to), outgoing + to * PART, PART,
                     cluster_address(received, to));
      }
    }
    mbarrier_wait(received, 0);
    cluster_arrive();
#pragma unroll 1
    for (int first = 0; first < PIECES; first += BATCH) {
      if (first > 0) load_residual(first, row64, n);
#pragma unroll
      for (int j = 0; j < BATCH; j++) store_sum(first, j, extra[j], biases[j % GROUPS], row64, n);
    }
  }

  // Where block `to` keeps the part of block `from`
  static __device__ int slot(int from, int to) { return from - (from > to); }

  __device__ void lay_down(const float (&d)[S::BN / 2], int row) const {
    const int lane = threadIdx.x % 32;
    const uint32_t to = outgoing + (row % 64 + lane / 4) * PITCH + 8 * (lane % 4);
#pragma unroll
    for (int i = 0; i < S::BN / 8; i++) {
      const uint32_t at = to + i / (W / 8) * PART + i % (W / 8) * 32;
      store_shared_2(at, d[4 * i], d[4 * i + 1]);
      store_shared_2(at + 8 * PITCH, d[4 * i + 2], d[4 * i + 3]);
    }
  }

  __device__ void store_sum(int first, int j, float4 residual, float4 bias, int row64, int n) const {
    const int row = piece_row(first) + j / GROUPS * DOWN, column = piece_column(j);
    float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
    for (int p = 0; p < S::SPLITS; p++) {
      const uint32_t part = p == rank ? outgoing + rank * PART : incoming + slot(p, rank) * PART;
      const float4 u = load_shared_4(part + row * PITCH + column * 4);
      v = make_float4(v.x + u.x, v.y + u.y, v.z + u.z, v.w + u.w);
    }
    v = make_float4(v.x + bias.x + residual.x, v.y + bias.y + residual.y, v.z + bias.z + residual.z,
                    v.w + bias.w + residual.w);
    if (row64 + row < rows)
      *reinterpret_cast<float4*>(out + static_cast<size_t>(row64 + row) * S::N + n + rank * W + column) = v;
  }
  __device__ void end() const {
    cluster_wait();  // the peers have what this block sent
  }
};
