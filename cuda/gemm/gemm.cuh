/* out = epilogue(a w + bias [+ residual]): the four linear layers.

   Shapes: a (rows, K) fp16, w (K, N) fp16 as the caller stores it, bias (N) fp32, residual and out (rows, N). `rows` is
   any; N and K are the layer's. Grid: ceil(rows / BM) * (N / BN), 1-D, the column tile running fastest so that
   neighbours share rows of a. Shared memory: GemmShared::BYTES, a ring of stages that copies fill while the warps
   multiply. Rows past the end repeat the last row and are not stored. Limiter: tensor cores and shared-memory reads for
   the large tiles; L2 latency for the small ones, whose K slices keep many warps and bytes in flight on a short
   problem. */
#pragma once

#include "common/ldmatrix.cuh"
#include "gemm/finish.cuh"

// sums += this warp's rows and columns of one stage, over its slice of the depth. The fragments of the next 16-deep
// step are loaded before the products of the current one.
template <class Arch, class G>
__device__ void multiply_stage(Sums<G>& sums, const __half* stage) {
  constexpr int DEPTHS = G::BK / 16 / G::WK;
  const __half* a = stage + G::warp_row() * G::A::PITCH + G::slice() * 16;
  const __half* b = stage + G::A::SIZE + G::slice() * 16 * G::B::PITCH + G::warp_column();
  unsigned fragment_a[2][G::ROW_TILES][4];
  unsigned fragment_b[2][G::COLUMN_TILES / 2][4];
  const auto load = [&](int depth) {
#pragma unroll
    for (int i = 0; i < G::ROW_TILES; ++i)
      load_a<typename G::A>(fragment_a[depth % 2][i], a + 16 * i * G::A::PITCH + 16 * G::WK * depth, G::lane());
#pragma unroll
    for (int j = 0; j < G::COLUMN_TILES / 2; ++j)
      load_b_kn<typename G::B>(fragment_b[depth % 2][j], b + 16 * G::WK * depth * G::B::PITCH + 16 * j, G::lane());
  };
  load(0);
#pragma unroll
  for (int depth = 0; depth < DEPTHS; ++depth) {
    if (depth + 1 < DEPTHS) load(depth + 1);
#pragma unroll
    for (int j = 0; j < G::COLUMN_TILES; ++j)
#pragma unroll
      for (int i = 0; i < G::ROW_TILES; ++i) {
        const unsigned* b_pair = &fragment_b[depth % 2][j / 2][j % 2 * 2];
        Arch::mma(sums[i][j], fragment_a[depth % 2][i], b_pair[0], b_pair[1]);
      }
  }
}

// One block. `w` and `a` are the layer's whole matrices; `bias_tile` receives the block's part of the bias meanwhile.
template <class Arch, class G, int N, int K>
__device__ void multiply(Sums<G>& sums, __half* stages, const __half* a, const __half* w, int last_row,
                         float* bias_tile, const float* bias) {
  using S = GemmShared<Arch, G>;
  constexpr int STEPS = K / G::BK;
  static_assert(N % G::BN == 0 && K % G::BK == 0);
  typename Arch::template Copy<typename G::A, G::THREADS> copy_a;
  typename Arch::template Copy<typename G::B, G::THREADS> copy_b;
  const auto fetch = [&](int step, int slot) {
    copy_a.fetch(stages + slot * S::STAGE, a + step * G::BK, K, threadIdx.x, last_row);
    copy_b.fetch(stages + slot * S::STAGE + G::A::SIZE, w + step * (G::BK * N), N, threadIdx.x);
  };
  const auto land = [&](int slot) {
    copy_a.land(stages + slot * S::STAGE, threadIdx.x);
    copy_b.land(stages + slot * S::STAGE + G::A::SIZE, threadIdx.x);
  };

#pragma unroll
  for (int step = 0; step < S::STAGES - 1; ++step) {
    if (step < STEPS) {
      fetch(step, step);
      land(step);
    }
    Arch::commit();
  }
  for (int i = threadIdx.x; i < G::BN; i += G::THREADS) bias_tile[i] = bias[i];

  int slot = 0;
#pragma unroll 1
  for (int step = 0; step < STEPS; ++step) {
    Arch::template wait<S::STAGES - 2>();
    __syncthreads();  // this stage has landed, and all have read the one before it, whose place is taken next
    const int next = step + S::STAGES - 1;
    const int next_slot = slot == 0 ? S::STAGES - 1 : slot - 1;
    if (next < STEPS) fetch(next, next_slot);
    Arch::commit();
    multiply_stage<Arch, G>(sums, stages + slot * S::STAGE);
    if (next < STEPS) land(next_slot);
    slot = slot == S::STAGES - 1 ? 0 : slot + 1;
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
                          w + first_column, rows - 1, bias_tile, bias + first_column);
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
