/* a w to fp32 accuracy, inside the resident kernel: a (rows, K) and w (K, N) in two parts each, hi hi + hi lo + lo hi.

   Every block takes tiles of BM x BN in turn, as in gemm/gemm.cuh, with both parts of both operands in each stage. The
   tensor cores cut their sums off instead of rounding them, so a stage is summed from zero, small products first, and
   then added in fp32; the slices of K meet in shared memory. Limiter: tensor cores for many rows, L2 latency for few.
 */
#pragma once

#include "common/ldmatrix.cuh"
#include "exact/portable_memory.cuh"
#include "gemm/finish.cuh"

template <class Arch, class G>
struct SplitShared {
  static constexpr int STAGES = Arch::stages(G::STAGES);
  static constexpr int B = 2 * G::A::SIZE;  // halves: hi and lo of a tile of a, then of w
  static constexpr int STAGE = B + 2 * G::B::SIZE;
  static constexpr int SUM_PITCH = G::BN + 8;  // floats
  static constexpr int BYTES = max_of(STAGES * STAGE * 2, G::WK* G::BM * SUM_PITCH * 4);
};

// One warp's operands of a stage: 16 deep, both parts.
template <class G>
struct SplitFragments {
  unsigned a[2][G::ROW_TILES][4];
  unsigned b[2][G::COLUMN_TILES / 2][4];

  template <class S>
  __device__ void load(const __half* stage) {
    static_assert(G::BK == 16 * G::WK, "one step a stage for each slice of K");
    const int k = 16 * G::slice();
    const __half* stage_a = stage + G::warp_row() * G::A::PITCH + k;
    const __half* stage_b = stage + S::B + k * G::B::PITCH + G::warp_column();
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll
      for (int i = 0; i < G::ROW_TILES; ++i)
        load_a<typename G::A>(a[part][i], stage_a + part * G::A::SIZE + 16 * i * G::A::PITCH, G::lane());
#pragma unroll
      for (int j = 0; j < G::COLUMN_TILES / 2; ++j)
        load_b_kn<typename G::B>(b[part][j], stage_b + part * G::B::SIZE + 16 * j, G::lane());
    }
  }

  // One of the products.
  template <class Arch>
  __device__ void multiply(Sums<G>& sums, int part_a, int part_b) const {
#pragma unroll
    for (int j = 0; j < G::COLUMN_TILES; ++j)
#pragma unroll
      for (int i = 0; i < G::ROW_TILES; ++i)
        Arch::mma(sums[i][j], a[part_a][i], b[part_b][j / 2][j % 2 * 2], b[part_b][j / 2][j % 2 * 2 + 1]);
  }
};

// sums = this warp's part of the block's tile. `a` points to the tile's first row, of which `rows` exist, `w` to its
// first column.
template <class Arch, class G, int N, int K>
__device__ void multiply_split(Sums<G>& sums, __half* stages, Parts a, Parts w, int rows) {
  using S = SplitShared<Arch, G>;
  static_assert(N % G::BN == 0 && K % G::BK == 0 && K / G::BK >= S::STAGES);
  int steps = K / G::BK;
  asm("" : "+r"(steps));  // a loop stays a loop: nvcc unrolls it where the tile is small, whatever the pragma says
  typename Arch::template Copy<typename G::A, K, G::THREADS> copy_a[2];
  typename Arch::template Copy<typename G::B, N, G::THREADS> copy_b[2];
  const auto fetch = [&](int step, __half* stage) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      copy_a[part].fetch(stage + part * G::A::SIZE, a[part] + step * G::BK, threadIdx.x, rows);
      copy_b[part].fetch(stage + S::B + part * G::B::SIZE, w[part] + step * (G::BK * N), threadIdx.x);
    }
  };
  const auto land = [&](__half* stage) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      copy_a[part].land(stage + part * G::A::SIZE, threadIdx.x);
      copy_b[part].land(stage + S::B + part * G::B::SIZE, threadIdx.x);
    }
  };

#pragma unroll
  for (int step = 0; step < S::STAGES - 1; ++step) {
    fetch(step, stages + step * S::STAGE);
    land(stages + step * S::STAGE);
    Arch::commit();
  }
  Arch::template wait<S::STAGES - 2>();
  __syncthreads();

  __half* const end = stages + S::STAGES * S::STAGE;
  __half* stage = stages;         // being multiplied
  __half* free = end - S::STAGE;  // read by all, or not yet used
  SplitFragments<G> fragments, next;
  fragments.template load<S>(stage);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const bool more = step + S::STAGES - 1 < steps;
    if (more) fetch(step + S::STAGES - 1, free);
    Arch::commit();
    Sums<G> part = {};
    fragments.template multiply<Arch>(part, 1, 0);
    fragments.template multiply<Arch>(part, 0, 1);
    if (more) land(free);
    Arch::template wait<S::STAGES - 2>();
    __syncthreads();  // the next stage has landed, and all have read this one
    free = stage;
    stage = stage + S::STAGE == end ? stages : stage + S::STAGE;
    next.template load<S>(stage);
    fragments.template multiply<Arch>(part, 0, 0);
    fragments = next;
#pragma unroll
    for (int i = 0; i < G::ROW_TILES; ++i)
#pragma unroll
      for (int j = 0; j < G::COLUMN_TILES; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[i][j][e] += part[i][j][e];
  }
}

// epilogue(row, column, sums of four neighbouring columns) for every element of a w.
template <class Arch, class G, int N, int K, class Epilogue>
__device__ __forceinline__ void gemm_split(uint4* shared, Parts a, Parts w, int rows, Epilogue epilogue) {
  using S = SplitShared<Arch, G>;
  constexpr int ACROSS = N / G::BN;
  const int tiles = (rows + G::BM - 1) / G::BM * ACROSS;
  float* const partial = reinterpret_cast<float*>(shared);
#pragma unroll 1
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int first_row = tile / ACROSS * G::BM;
    const int first_column = tile % ACROSS * G::BN;
    Sums<G> sums = {};
    multiply_split<Arch, G, N, K>(sums, reinterpret_cast<__half*>(shared), a + static_cast<size_t>(first_row) * K,
                                  w + first_column, rows - first_row);
    __syncthreads();  // the stages are free
    leave_sums<G, S::SUM_PITCH>(sums, partial);
    __syncthreads();
#pragma unroll 1
    for (int quad = threadIdx.x; quad < G::BM * G::BN / 4; quad += G::THREADS) {
      const int row = quad / (G::BN / 4);
      const int column = quad % (G::BN / 4) * 4;
      if (row >= rows - first_row) break;
      float4 sum = {};
#pragma unroll
      for (int slice = 0; slice < G::WK; ++slice) {
        const float4 v = *reinterpret_cast<const float4*>(partial + (slice * G::BM + row) * S::SUM_PITCH + column);
        sum = make_float4(sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w);
      }
      epilogue(static_cast<size_t>(first_row + row), first_column + column, sum);
    }
    __syncthreads();
  }
}
