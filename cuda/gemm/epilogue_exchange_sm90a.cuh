/* out(rows, N) fp32 = sum over a tile's blocks of C + bias + residual.
   The four blocks of a cluster hold sums over different parts of K for one tile, and each finishes W = BN / 4 of its columns. A warp lays the parts of
   its 16 rows that others finish into a stage of the ring that nobody reads any more, copies each into the same warp of its block, and adds what it receives
   to the part that it has kept in registers, in the order of the ranks: the same bits every time. No warp waits for another one of its block, so the
   first warpgroup sends and stores while the second one multiplies. `out` and `residual` need no more alignment than 16 bytes, and `out` is touched by
   nobody else. */
#pragma once
#include "common/copy_sm90a.cuh"
#include "gemm/gemm_sm90a.cuh"

template <class S>
struct ExchangeEpilogue : GemmEpilogue {
  static constexpr int CLUSTER_PHASES = 2;
  static_assert(S::SPLITS == 4 && S::CLUSTER == 4, "a cluster has the parts of one tile");
  static constexpr int W = S::BN / S::SPLITS, PEERS = S::SPLITS - 1;
  static constexpr int PITCH = (W + 8) * 4;  // bytes of a row: eight rows of pairs fall on different banks
  static constexpr int PART = 16 * PITCH;    // what one warp has of W columns
  static constexpr int WARPS = 4 * S::WARPGROUPS;
  static constexpr int BIAS = WARPS * PEERS * PART, BIAS_FULL = BIAS + S::N * 4;  // places in shared memory
  static constexpr int SHARED_BYTES = BIAS_FULL + 16;
  static_assert(4 * PEERS * PART <= S::STAGE_BYTES * (S::WARPGROUPS > 1 ? 1 : S::STAGES) && S::STAGES >= S::WARPGROUPS, "room for what a warpgroup sends");
  // 16-byte pieces: ACROSS lanes share a row, DOWN rows go at a time
  static constexpr int ACROSS = W / 4, DOWN = 32 / ACROSS, PIECES = 16 / DOWN;
  static_assert(32 % ACROSS == 0 && 16 % DOWN == 0, "whole pieces");
  // ask for the residual before the main loop; for larger parts it would hold up the first tiles, and the exchange hides it
  static constexpr bool EARLY = W <= 16;

  const float* bias;      // (N)
  const float* residual;  // (rows, N)
  float* out;             // (rows, N)
  int rows;
  uint32_t incoming, outgoing, bias_at, bias_full, barriers;
  int rank;  // among the blocks of the tile
  float4 extra[PIECES];  // of the residual

  __device__ ExchangeEpilogue(const float* bias, const float* residual, float* out, int rows) : bias(bias), residual(residual), out(out), rows(rows) {}

  // The stage that warpgroup w may use when it has left the ring: the first of two waits until the second has left that one, too.
  static __device__ int stage(int w) { return S::WARPGROUPS > 1 ? (S::K_BLOCKS - S::STAGES + w) % S::STAGES : 0; }
  static constexpr uint32_t LAST_PARITY = (S::K_BLOCKS - S::STAGES) / S::STAGES % 2;  // of its last use

  __device__ void at(uint32_t memory, uint32_t after_ring, int r) {
    const int warp = threadIdx.x / 32;
    incoming = memory + warp * (PEERS * PART);
    outgoing = memory - S::STAGES * S::STAGE_BYTES + stage(warp / 4) * S::STAGE_BYTES + warp % 4 * (PEERS * PART);
    bias_at = memory + BIAS;
    bias_full = memory + BIAS_FULL;
    barriers = after_ring;
    rank = r;
  }
  __device__ void init() const {
    mbarrier_init(bias_full, 1);
    for (int w = 0; w < WARPS; w++) {
      mbarrier_init(barriers + 8 * w, 1);
      mbarrier_expect(barriers + 8 * w, PEERS * PART);
    }
  }
  __device__ void load() const {
    mbarrier_expect(bias_full, S::N * 4);
    bulk_load(bias_at, bias, S::N * 4, bias_full);
  }

  // Piece i of a lane: its row; and the first column of all of them
  static __device__ int piece_row(int i) { return threadIdx.x % 32 / ACROSS + i * DOWN; }
  static __device__ int piece_column() { return threadIdx.x % ACROSS * 4; }
  static __device__ size_t piece_offset(int i, int row, int n) { return static_cast<size_t>(row + piece_row(0)) * S::N + n + piece_column() + i * DOWN * S::N; }

  // `n`, here and below: the first of the columns that this block finishes
  __device__ void load_residual(int row, int n) {
#pragma unroll
    for (int i = 0; i < PIECES; i++)
      if (row + piece_row(i) < rows) extra[i] = load_here_4(residual + piece_offset(i, row, n));
  }
  __device__ void prepare(int row, int n) {
    pdl_wait();
    if (EARLY) load_residual(row, n + rank * W);
  }

  __device__ void finish(float (&d)[S::BN / 2], int row, int n) {
    // The empty barrier of that stage: the ring's lie right in front of the epilogue's own.
    if (S::WARPGROUPS == 2 && threadIdx.x < 128) mbarrier_wait(barriers - 8 * (S::STAGES - stage(0)), LAST_PARITY);
    n += rank * W;
    if (rank == 0) return exchange<0>(d, row, n);
    if (rank == 1) return exchange<1>(d, row, n);
    rank == 2 ? exchange<2>(d, row, n) : exchange<3>(d, row, n);
  }

  // Where block `to` keeps the part of block `from`, and where `from` has it before
  static constexpr __device__ int slot(int from, int to) { return from - (from > to); }

  template <int RANK>
  __device__ void exchange(const float (&d)[S::BN / 2], int row, int n) {
    const int lane = threadIdx.x % 32;
    const uint32_t place = lane / 4 * PITCH + lane % 4 * 8, received = barriers + threadIdx.x / 32 * 8;
#pragma unroll
    for (int i = 1; i < S::SPLITS; i++) {
      constexpr int COUNT = W / 2;  // accumulators of a part
      const int to = (RANK + i) % S::SPLITS;
#pragma unroll
      for (int g = 0; g < W / 8; g++) {
        const float* v = d + to * COUNT + 4 * g;
        const uint32_t at = outgoing + (i - 1) * PART + place + 32 * g;
        store_shared_2(at, v[0], v[1]);
        store_shared_2(at + 8 * PITCH, v[2], v[3]);
      }
    }
    fence_async_shared();
    cluster_wait();  // the peers have their barriers
    __syncwarp();
    if (elect_one()) {
#pragma unroll
      for (int i = 1; i < S::SPLITS; i++) {
        const int to = (RANK + i) % S::SPLITS;
        cluster_copy(cluster_address(incoming + slot(RANK, to) * PART, to), outgoing + (i - 1) * PART, PART, cluster_address(received, to));
      }
    }
    if (!EARLY) load_residual(row, n);
    mbarrier_wait(bias_full, 0);
    mbarrier_wait(received, 0);
    cluster_arrive();
    add<RANK>(d, incoming + place);
    __syncwarp();
    const float4 b = load_shared_4(bias_at + (n + piece_column()) * 4);
    float4 sums[PIECES];
#pragma unroll
    for (int i = 0; i < PIECES; i++) sums[i] = load_shared_4(incoming + piece_row(i) * PITCH + piece_column() * 4);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      const float4 v = sums[i], x = extra[i];
      if (row + piece_row(i) < rows)
        *reinterpret_cast<float4*>(out + piece_offset(i, row, n)) = make_float4(v.x + b.x + x.x, v.y + b.y + x.y, v.z + b.z + x.z, v.w + b.w + x.w);
    }
  }

  // This block's part and the peers' into the first of their places. All loads come before all stores: one behind a store would wait for it.
  template <int RANK>
  static __device__ void add(const float (&d)[S::BN / 2], uint32_t to) {
    float2 parts[PEERS][W / 4];
#pragma unroll
    for (int p = 0; p < PEERS; p++)
#pragma unroll
      for (int i = 0; i < W / 4; i++) parts[p][i] = load_shared_2(to + p * PART + i / 2 * 32 + i % 2 * (8 * PITCH));
#pragma unroll
    for (int i = 0; i < W / 4; i++) {
      const float2 own = make_float2(d[RANK * (W / 2) + 2 * i], d[RANK * (W / 2) + 2 * i + 1]);
      float2 sum = RANK == 0 ? own : parts[0][i];
#pragma unroll
      for (int p = 1; p < S::SPLITS; p++) {
        const float2 v = p == RANK ? own : parts[slot(p, RANK)][i];
        sum = make_float2(sum.x + v.x, sum.y + v.y);
      }
      store_shared_2(to + i / 2 * 32 + i % 2 * (8 * PITCH), sum.x, sum.y);
    }
  }

  __device__ void end() const {
    cluster_wait();  // the peers have what this block sent
  }
};
