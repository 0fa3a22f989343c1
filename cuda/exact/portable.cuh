/* The exact block on sm_75 and sm_80: one resident kernel, one block of 256 threads per SM, a grid barrier between its
   stages; exact.cuh says what it computes, portable_memory.cuh where everything lies.

   `Arch` is an architecture of common/ with its tiles: Large and Few of the products, of which so many waves of Few
   take as long as one of Large, and KEYS of the attention. Everything that a stage reads was written by other blocks in
   this launch, so no pointer is `__restrict__`. Shared memory: ExactShared::BYTES. Limiter: tensor cores for many rows
   (three products each), the barriers and the two passes over the weights for few. */
#pragma once

#include "exact/portable_attention.cuh"
#include "exact/portable_gemm.cuh"
#include "exact/portable_weights.cuh"

template <class Arch>
struct ExactShared {
  static constexpr int GEMM =
      max_of(SplitShared<Arch, typename Arch::Large>::BYTES, SplitShared<Arch, typename Arch::Few>::BYTES);
  static constexpr int BYTES = max_of(GEMM, ExactAttentionShared<Arch::KEYS>::BYTES);
};

// a w in whichever tiles take less time.
template <class Arch, int N, int K, class Epilogue>
__device__ __forceinline__ void product(uint4* shared, Parts a, Parts w, int rows, Epilogue epilogue) {
  using Large = typename Arch::Large;
  using Few = typename Arch::Few;
  constexpr int AS_LONG = K > D ? Arch::FEW_FOR_LONG : Arch::FEW_FOR_LARGE;
  const auto waves = [&](int m, int n) { return ((rows + m - 1) / m * (N / n) + gridDim.x - 1) / gridDim.x; };
  if (waves(Few::BM, Few::BN) < AS_LONG * waves(Large::BM, Large::BN))
    gemm_split<Arch, Few, N, K>(shared, a, w, rows, epilogue);
  else
    gemm_split<Arch, Large, N, K>(shared, a, w, rows, epilogue);
}

// h = LayerNorm(x), scaled, in two parts; a warp a row.
__device__ inline void layernorm_split(const float* x, const float* gamma, const float* beta, Parts h, float scale,
                                       int rows) {
  const int warps = gridDim.x * blockDim.x / 32;
  for (int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32; row < rows; row += warps) {
    const size_t offset = static_cast<size_t>(row) * D;
    normalise_row<true>(x + offset, gamma, beta, threadIdx.x % 32, [&](int column, float4 v) {
      (h + (offset + column)).store(make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale));
    });
  }
}

// Waits until all blocks are here; all their writes are then seen.
__device__ inline void meet(GridBarrier& barrier) {
  __syncthreads();
  if (threadIdx.x == 0) barrier.meet();
  __syncthreads();
}

template <class Visit>
__device__ float4 each_of(float4 a, float4 b, Visit visit) {
  return make_float4(visit(a.x, b.x), visit(a.y, b.y), visit(a.z, b.z), visit(a.w, b.w));
}
__device__ inline float4 load_vector(const float* p) { return *reinterpret_cast<const float4*>(p); }

__device__ __forceinline__ void cast_exact(const ExactArgs& args, const ExactMemory& memory, GridBarrier& barrier,
                                           uint4* shared) {
  unsigned* const alarms = args.phases & EXACT_FORWARD ? nullptr : args.alarms;
  const bool aligned = reinterpret_cast<size_t>(args.weights) % 16 == 0;
  if (aligned)
    measure_weights<true>(args.weights, memory, alarms);
  else
    measure_weights<false>(args.weights, memory, alarms);
  meet(barrier);
  const int others = gridDim.x - 1;  // there is no GPU of one SM
  if (static_cast<int>(blockIdx.x) == others)
    find_scales(memory, reinterpret_cast<float*>(shared));
  else if (aligned)
    split_weights<true>(args.weights, memory, others);
  else
    split_weights<false>(args.weights, memory, others);
}

template <class Arch>
__device__ __forceinline__ void forward_exact(const ExactArgs& args, const ExactMemory& memory, GridBarrier& barrier,
                                              uint4* shared) {
  const Scales& scales = *memory.scales;
  const float* vectors = memory.vectors;
  const Parts w = memory.weights;
  const int rows = args.rows;
  const auto biased = [&](float4 sum, int bias, int column, int first_slab, float scale) {
    const Undo undo(scales.weight[first_slab + column / SLAB], scale);
    return each_of(sum, load_vector(vectors + bias + column), [&](float v, float b) { return undo(v) + b; });
  };

  layernorm_split(args.x, vectors + VECTOR_GAMMA1, vectors + VECTOR_BETA1, memory.h, scales.h1, rows);
  meet(barrier);
  product<Arch, QKV, D>(shared, memory.h, w + PACKED_QKV, rows, [&](size_t row, int column, float4 sum) {
    const float scale = scales.qkv[column / SLAB];
    const float4 v = biased(sum, VECTOR_B_QKV, column, 0, scales.h1);
    (memory.qkv + (row * QKV + column)).store(make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale));
  });
  meet(barrier);
  attention_split<Arch, Arch::KEYS>(shared, memory, rows, args.seq_len, args.causal != 0);
  meet(barrier);
  const auto add = [](float a, float b) { return a + b; };
  product<Arch, D, D>(shared, memory.h, w + PACKED_ATTN, rows, [&](size_t row, int column, float4 sum) {
    const size_t at = row * D + column;
    const float4 v = biased(sum, VECTOR_B_ATTN, column, SLAB_ATTN, scales.att);
    *reinterpret_cast<float4*>(args.output + at) = each_of(v, load_vector(args.x + at), add);
  });
  meet(barrier);
  layernorm_split(args.output, vectors + VECTOR_GAMMA2, vectors + VECTOR_BETA2, memory.h, scales.h2, rows);
  meet(barrier);
  product<Arch, FFN, D>(shared, memory.h, w + PACKED_FC, rows, [&](size_t row, int column, float4 sum) {
    const float scale = scales.f;
    const float4 v = biased(sum, VECTOR_B_FC, column, SLAB_FC, scales.h2);
    (memory.f + (row * FFN + column))
        .store(make_float4(gelu_exact(v.x) * scale, gelu_exact(v.y) * scale, gelu_exact(v.z) * scale,
                           gelu_exact(v.w) * scale));
  });
  meet(barrier);
  product<Arch, D, FFN>(shared, memory.f, w + PACKED_PROJ, rows, [&](size_t row, int column, float4 sum) {
    const size_t at = row * D + column;
    const float4 v = biased(sum, VECTOR_B_PROJ, column, SLAB_PROJ, scales.f);
    *reinterpret_cast<float4*>(args.output + at) = each_of(v, load_vector(args.output + at), add);
  });
}

template <class Arch>
__device__ __forceinline__ void exact_block(const ExactArgs& args) {
  extern __shared__ uint4 shared[];
  const auto clear_alarms = [&] {
    if (!args.keep_alarms && blockIdx.x == 0 && threadIdx.x < ALARMS) args.alarms[threadIdx.x] = 0;
  };
  bool raised;
  if (!must_rescue(args.alarms, args.rule, raised)) {
    if (raised) clear_alarms();  // fewer alarms never turn another block's mind
    return;
  }
  const ExactMemory memory(args.memory, args.rows);
  GridBarrier barrier(args.memory, blockIdx.x, gridDim.x);
  if (args.phases & EXACT_CAST) {
    cast_exact(args, memory, barrier, shared);
    meet(barrier);
  }
  if (!(args.phases & EXACT_FORWARD)) return;
  forward_exact<Arch>(args, memory, barrier, shared);
  clear_alarms();  // every block has read them before the first barrier
}
