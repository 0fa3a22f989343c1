/* out = epilogue(a w + bias [+ residual]): the four linear layers.

   Shapes: a (rows, K) fp16, w (K, N) fp16 as the caller stores it, bias (N) fp32, residual and out (rows, N). `rows` is
   any; N and K are the layer's. Grid: ceil(rows / BM) * (N / BN), 1-D, the column tile running fastest so that
   neighbours share rows of a. Shared memory: GemmShared::BYTES, a ring of stages that copies fill while the warps
   multiply. Rows past the end are zero and are not stored.

   Limiter: tensor cores and shared-memory reads for the large tiles; L2 latency and bandwidth into one SM for the small
   ones, whose slices of K keep many warps and bytes in flight on a short problem. */
#pragma once

#include "common/ldmatrix.cuh"
#include "gemm/finish.cuh"

// One warp's operands of a 16-deep step.
template <class G>
struct Fragments {
  unsigned a[G::ROW_TILES][4];
  unsigned b[G::COLUMN_TILES / 2][4];

  // From depth `depth` of this warp's slice of a stage.
  __device__ void load(const __half* stage, int depth) {
    const int k = 16 * (G::WK * depth + G::slice());
    const __half* stage_a = stage + G::warp_row() * G::A::PITCH + k;
    const __half* stage_b = stage + G::A::SIZE + k * G::B::PITCH + G::warp_column();
#pragma unroll
    for (int i = 0; i < G::ROW_TILES; ++i) load_a<typename G::A>(a[i], stage_a + 16 * i * G::A::PITCH, G::lane());
#pragma unroll
    for (int j = 0; j < G::COLUMN_TILES / 2; ++j) load_b_kn<typename G::B>(b[j], stage_b + 16 * j, G::lane());
  }

  template <class Arch>
  __device__ void multiply(Sums<G>& sums) const {
#pragma unroll
    for (int j = 0; j < G::COLUMN_TILES; ++j)
#pragma unroll
      for (int i = 0; i < G::ROW_TILES; ++i) Arch::mma(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
  }
};

// sums = this warp's part of the block's tile of a w. `a` points to the tile's first row, of which `rows` exist, `w` to
// its first column; `bias_tile` receives the tile's part of the bias meanwhile. The fragments of a step are loaded
// while the products of the step before are under way, across stages too.
template <class Arch, class G, int N, int K>
__device__ void multiply(Sums<G>& sums, __half* stages, const __half* a, const __half* w, int rows, float* bias_tile,
                         const float* bias) {
  using S = GemmShared<Arch, G>;
  constexpr int STEPS = K / G::BK;
  constexpr int DEPTHS = G::BK / 16 / G::WK;
  static_assert(N % G::BN == 0 && K % G::BK == 0 && STEPS >= S::STAGES);
  typename Arch::template Copy<typename G::A, K, G::THREADS> copy_a;
  typename Arch::template Copy<typename G::B, N, G::THREADS> copy_b;
  const auto fetch = [&](int step, __half* stage) {
    copy_a.fetch(stage, a + step * G::BK, threadIdx.x, rows);
    copy_b.fetch(stage + G::A::SIZE, w + step * (G::BK * N), threadIdx.x);
  };
  const auto land = [&](__half* stage) {
    copy_a.land(stage, threadIdx.x);
    copy_b.land(stage + G::A::SIZE, threadIdx.x);
  };

#pragma unroll
  for (int step = 0; step < S::STAGES - 1; ++step) {
    fetch(step, stages + step * S::STAGE);
    land(stages + step * S::STAGE);
    Arch::commit();
  }
#pragma unroll 1
  for (int i = threadIdx.x; i < G::BN; i += G::THREADS) bias_tile[i] = bias[i];
  Arch::template wait<S::STAGES - 2>();
  __syncthreads();

  __half* const end = stages + S::STAGES * S::STAGE;
  __half* stage = stages;         // being multiplied
  __half* free = end - S::STAGE;  // read by all, or not yet used
  Fragments<G> fragments[2];
  fragments[0].load(stage, 0);
#pragma unroll 1
  for (int step = 0; step < STEPS; ++step) {
    const bool more = step + S::STAGES - 1 < STEPS;
    if (more) fetch(step + S::STAGES - 1, free);
    Arch::commit();
#pragma unroll
    for (int depth = 0; depth < DEPTHS; ++depth) {
      if (depth + 1 == DEPTHS) {
        if (more) land(free);
        Arch::template wait<S::STAGES - 2>();
        __syncthreads();  // the next stage has landed, and all have read this one
        free = stage;
        stage = stage + S::STAGE == end ? stages : stage + S::STAGE;
      }
      fragments[(depth + 1) % 2].load(stage, (depth + 1) % DEPTHS);
      fragments[depth % 2].template multiply<Arch>(sums);
    }
    if (DEPTHS % 2) fragments[0] = fragments[1];  // the next stage's first step
  }
}

template <class Arch, class Epilogue, class G, int N, int K>
__device__ void gemm(const __half* __restrict__ a, const __half* __restrict__ w, const float* __restrict__ bias,
                     const float* __restrict__ residual, void* __restrict__ out, int rows) {
  using S = GemmShared<Arch, G>;
  extern __shared__ uint4 shared[];
  float* bias_tile = reinterpret_cast<float*>(reinterpret_cast<char*>(shared) + S::BIAS_AT);
  const int first_row = blockIdx.x / (N / G::BN) * G::BM;
  const int first_column = blockIdx.x % (N / G::BN) * G::BN;
  rows -= first_row;

  Sums<G> sums = {};
  multiply<Arch, G, N, K>(sums, reinterpret_cast<__half*>(shared), a + static_cast<size_t>(first_row) * K,
                          w + first_column, rows, bias_tile, bias + first_column);
  __syncthreads();  // the stages are free

  const size_t offset = static_cast<size_t>(first_row) * N + first_column;
  const float* residual_tile = Epilogue::RESIDUAL ? residual + offset : nullptr;
  auto* out_tile = static_cast<typename Epilogue::Out*>(out) + offset;
  if constexpr (G::WK > 1)
    finish_slices<Epilogue, G, N, S::SUM_PITCH>(sums, reinterpret_cast<float*>(shared), bias_tile, residual_tile,
                                                out_tile, rows);
  else if constexpr (sizeof(typename Epilogue::Out) == 2)
    finish_half<Epilogue, G, N>(sums, reinterpret_cast<__half*>(shared) + threadIdx.x / 32 * S::SCRATCH, bias_tile,
                                out_tile, rows);
  else
    finish_float<Epilogue, G, N>(sums, bias_tile, residual_tile, out_tile, rows);
}
