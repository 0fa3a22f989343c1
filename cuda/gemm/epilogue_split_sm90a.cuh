/* out(rows, N) fp32 = sum over the cluster's blocks of C + bias + residual, for one tile of 64 rows.
   The SPLITS blocks of a cluster hold sums over different parts of K for one tile. Each lays its tile down in SPLITS
   parts of W = BN / SPLITS columns, where the ring was, and copies part p into block p, which adds what it received in
   the order of the ranks (the same bits every time) and stores whole 16-byte pieces of rows, one a thread: `out` and
   `residual` need no more alignment than that, and `out` is touched by nobody else. (Stores of 8 bytes into a peer's
   memory instead of bulk copies: 4 us more at 128 x 96.) */
#pragma once
#include "common/copy_sm90a.cuh"
#include "gemm/gemm_sm90a.cuh"

template <class S>
struct SplitEpilogue {
  static constexpr int CLUSTER_PHASES = 2;
  static constexpr int W = S::BN / S::SPLITS, ACROSS = W / 4;  // columns of a part, and threads that share a row of it
  static constexpr int PITCH = (W + 4) * 4;  // bytes of a row: at most two pairs of eight rows fall on the same bank
  static constexpr int PART = 64 * PITCH;
  static constexpr int PEERS = S::SPLITS - 1;
  static constexpr int SHARED_BYTES = PEERS * PART;  // what comes from them
  static_assert(S::SPLITS > 1 && S::BM == 64 && 64 * ACROSS == 128, "a piece for each thread");
  static_assert(S::SPLITS * PART <= S::STAGES * S::STAGE_BYTES, "the ring holds the outgoing parts");

  const float* bias;      // (N)
  const float* residual;  // (rows, N)
  float* out;             // (rows, N)
  int rows;
  uint32_t incoming, outgoing, received;
  int rank;
  float4 extra;  // of the residual, asked for before the main loop

  __device__ SplitEpilogue(const float* bias, const float* residual, float* out, int rows)
      : bias(bias), residual(residual), out(out), rows(rows) {}
  __device__ void at(uint32_t memory, uint32_t barriers, int r) {
    incoming = memory;
    outgoing = memory - S::STAGES * S::STAGE_BYTES;
    received = barriers;
    rank = r;
  }
  __device__ void init() const {
    mbarrier_init(received, 1);
    mbarrier_expect(received, PEERS * PART);
  }
  __device__ void load() const {}

  // The thread's piece
  static __device__ int piece_row() { return threadIdx.x % 128 / ACROSS; }
  __device__ int piece_column(int n) const { return n + rank * W + threadIdx.x % ACROSS * 4; }
  __device__ size_t piece(int n) const { return static_cast<size_t>(piece_row()) * S::N + piece_column(n); }

  __device__ void prepare(int, int n) {
    pdl_wait();
    if (piece_row() < rows) extra = load_here_4(residual + piece(n));
  }

  __device__ void finish(float (&d)[S::BN / 2], int row, int n) {
    named_barrier_sync(3, 128);  // all warps have left the ring
    lay_down(d, row);
    const float4 biases = load_here_4(bias + piece_column(n));
    fence_async_shared();
    cluster_wait();  // every block of the cluster has its barriers
    named_barrier_sync(3, 128);  // all parts are laid down and fenced: one thread may copy them
    if (threadIdx.x == 0) {
#pragma unroll
      for (int i = 1; i < S::SPLITS; i++) {
        const int to = (rank + i) % S::SPLITS;
        cluster_copy(cluster_address(incoming + slot(rank, to) * PART, to), outgoing + to * PART, PART,
                     cluster_address(received, to));
      }
    }
    mbarrier_wait(received, 0);
    cluster_arrive();
    store_sum(biases, n);
  }

  // Where block `to` keeps the part of block `from`
  static __device__ int slot(int from, int to) { return from - (from > to); }

  __device__ void lay_down(const float (&d)[S::BN / 2], int row) const {
    const int lane = threadIdx.x % 32;
    const uint32_t to = outgoing + (row + lane / 4) * PITCH + 8 * (lane % 4);
#pragma unroll
    for (int i = 0; i < S::BN / 8; i++) {
      const uint32_t at = to + i / (W / 8) * PART + i % (W / 8) * 32;
      store_shared_2(at, d[4 * i], d[4 * i + 1]);
      store_shared_2(at + 8 * PITCH, d[4 * i + 2], d[4 * i + 3]);
    }
  }

  __device__ void store_sum(float4 biases, int n) const {
    const uint32_t from = piece_row() * PITCH + threadIdx.x % ACROSS * 16;
    float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll
    for (int p = 0; p < S::SPLITS; p++) {
      const float4 u = load_shared_4((p == rank ? outgoing + rank * PART : incoming + slot(p, rank) * PART) + from);
      v = make_float4(v.x + u.x, v.y + u.y, v.z + u.z, v.w + u.w);
    }
    v = make_float4(v.x + biases.x + extra.x, v.y + biases.y + extra.y, v.z + biases.z + extra.z,
                    v.w + biases.w + extra.w);
    if (piece_row() < rows) *reinterpret_cast<float4*>(out + piece(n)) = v;
  }
  __device__ void end() const {
    cluster_wait();  // the peers have what this block sent
  }
};
