/* Weight slices: brought into shared memory asynchronously, long before they are needed, and handed out as the B
   operand of mma.m16n8k16 (k x n, the two halves of a register being neighbours in k). Here the caller's fp32 weights,
   row-major, rounded to fp16 on their way into registers; packed.cuh has the prepared ones.

   The order of k inside a product is free as long as A and B agree. Lane (g, t) = (lane / 4, lane % 4) takes GROUP
   neighbouring k of each 4 GROUP for its own, GROUP / 4 steps of the MMA, so that A is read with whole vectors: step s,
   element i is row GROUP t + 4 s + i. That row of the slice lies in slot 16 s + 4 i + t: then the four t of one access
   are neighbours, and with 8 or 24 columns to a slot the 32 lanes hit 32 banks. */
#pragma once

#include "small/layout.cuh"
#include "small/ptx.cuh"

namespace small {

struct Fp32Slices {
  using Element = float;
  static constexpr bool SPLIT_PROJ = true;

  template <class S>
  static __device__ __forceinline__ uint2 fragment(const float* slice, int step, int tile) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const float* w = slice + (16 * step + t) * S::WIDTH + 8 * tile + g;
    return make_uint2(pack(w[0], w[4 * S::WIDTH]), pack(w[8 * S::WIDTH], w[12 * S::WIDTH]));
  }
};

/* Each kind of weights has bring(), which all threads call: a slice and its columns of the bias, arriving at `bar`. To
   issue a copy takes a thread 0.1 us, so a few warps from `first_warp` on issue one each.

   A buffer aligned to 16 bytes: the copy engine orders the rows, the matrix being described to it as (K / (4 GROUP),
   GROUP, 4, N) with the strides of rows 4 GROUP, 1, GROUP (outermost first). The box is (BLOCKS, GROUP, 4, WIDTH); the
   host encodes one map for each matrix and width. */
struct Fp32Weights : Fp32Slices {
  static constexpr int ARRIVALS = 1;
  struct Matrices {
    TensorMap qkv, attn, fc, proj;
  };
  template <class S>
  static constexpr int BLOCKS =
      S::ROWS / (4 * S::Matrix::GROUP) / (S::Matrix::GROUP == 16 ? (S::WIDTH == 8 ? 3 : S::ROWS / 192) : 4);

  static __device__ __forceinline__ const TensorMap* map(const Matrices& m, Qkv) { return &m.qkv; }
  static __device__ __forceinline__ const TensorMap* map(const Matrices& m, Attn) { return &m.attn; }
  static __device__ __forceinline__ const TensorMap* map(const Matrices& m, Fc) { return &m.fc; }
  static __device__ __forceinline__ const TensorMap* map(const Matrices& m, Proj) { return &m.proj; }

  template <class S>
  static __device__ __forceinline__ void bring(float* to, float* bias_to, const Matrices& m, const float* bias,
                                               int slice, uint64_t* bar, int first_warp) {
    constexpr int STEP = 4 * S::Matrix::GROUP, COPIES = S::ROWS / STEP / BLOCKS<S>;
    const int copy = static_cast<int>(threadIdx.x / 32) - first_warp;
    if (threadIdx.x % 32 || copy < 0 || copy >= COPIES) return;
    copy_box(to + copy * BLOCKS<S> * STEP * S::WIDTH, map(m, typename S::Matrix{}), S::column(slice), 0, 0,
             S::row(slice) / STEP + copy * BLOCKS<S>, bar);
    if (copy) return;
    barrier_expect(bar, (S::ROWS + 1) * S::WIDTH * 4);
    copy_run(bias_to, bias + S::column(slice), S::WIDTH * 4, bar);
  }
  static __device__ __forceinline__ void bring_norm(float* to, const float* from, uint64_t* bar, int thread) {
    if (threadIdx.x != thread) return;
    barrier_expect(bar, 2 * D * 4);
    copy_run(to, from, 2 * D * 4, bar);
  }
  static __device__ __forceinline__ float4 vector(const float* p) { return load_early(p); }
};

/* A buffer aligned only to floats: every thread copies single words, several times slower. */
struct UnalignedWeights : Fp32Slices {
  static constexpr int ARRIVALS = THREADS;
  struct Matrices {
    const float* weights;
  };

  template <int GROUP>
  static __device__ constexpr int slot_of(int row) {
    return row % GROUP * 4 + row / GROUP % 4 + row / (4 * GROUP) * (4 * GROUP);
  }

  template <class S>
  static __device__ __forceinline__ void bring(float* to, float* bias_to, const Matrices& m, const float* bias,
                                               int slice, uint64_t* bar, int) {
    constexpr int AT_ONCE = THREADS / S::WIDTH;  // rows
    static_assert(S::ROWS % AT_ONCE == 0);
    const int r = threadIdx.x / S::WIDTH, c = threadIdx.x % S::WIDTH;
    const float* from =
        m.weights + S::Matrix::OFFSET + static_cast<size_t>(S::row(slice) + r) * S::Matrix::N + S::column(slice) + c;
#pragma unroll 4
    for (int i = 0; i < S::ROWS / AT_ONCE; ++i)
      copy_word(shared_address(to + slot_of<S::Matrix::GROUP>(i * AT_ONCE + r) * S::WIDTH + c),
                from + static_cast<size_t>(i) * AT_ONCE * S::Matrix::N);
    if (threadIdx.x < S::WIDTH) copy_word(shared_address(bias_to + threadIdx.x), bias + S::column(slice) + threadIdx.x);
    barrier_arrive_after_copies(bar);
  }
  static __device__ __forceinline__ void bring_norm(float* to, const float* from, uint64_t* bar, int) {
    for (int i = threadIdx.x; i < 2 * D; i += THREADS) copy_word(shared_address(to + i), from + i);
    barrier_arrive_after_copies(bar);
  }
  static __device__ __forceinline__ float4 vector(const float* p) {
    return make_float4(load_early_word(p), load_early_word(p + 1), load_early_word(p + 2), load_early_word(p + 3));
  }
};

}  // namespace small
