/* Weight slices: brought into shared memory asynchronously, long before they are needed, and handed out as the B
   operand of mma.m16n8k16 (k x n, the two halves of a register being neighbours in k). Here the caller's fp32 weights,
   row-major, rounded to fp16 on their way into registers; packed.cuh has the prepared ones.

   The order of k inside a product is free as long as A and B agree. Lane (g, t) = (lane / 4, lane % 4) takes GROUP
   neighbouring k of each 4 GROUP for its own, GROUP / 4 steps of the MMA, so that A is read with whole vectors: step s,
   element i is row GROUP t + 4 s + i. That row of the slice lies in slot 16 s + 4 i + t: then the four t of one access
   are neighbours, and with 8 or 24 columns to a slot the 32 lanes hit 32 banks. With PAIR_COLS columns, 64 bytes, a
   lane takes two neighbouring ones, of which a tile has every other, and pieces of 16 bytes have changed places within
   their slot as the copy engine's swizzle of 64 bytes has it: piece p of slot r is where r / 2 % 4 ^ p would be. */
#pragma once

#include "common/copy_sm90a.cuh"
#include "common/pack.cuh"
#include "common/sync_sm90a.cuh"
#include "small/layout.cuh"
#include "small/pace.cuh"
#include "small/ptx.cuh"

namespace small {

struct Fp32Slices {
  using Element = float;
  static constexpr bool FP32 = true, WATCHED = true;  // for what fp16 does not hold (watch.cuh)

  template <class S>
  static constexpr bool IN_PAIRS = S::WIDTH == PAIR_COLS;

  // Which of a slice's columns is column g of a tile. In pairs 16 lanes, four g, hit 32 banks
  template <class S>
  static __device__ __forceinline__ int column(int tile, int g) {
    return IN_PAIRS<S> ? g % 2 * 2 + g / 2 % 2 * 8 + g / 4 * 4 + tile : 8 * tile + g;
  }

  // Four neighbouring k of a column
  template <class S>
  static __device__ __forceinline__ float4 numbers(const float* slice, int step, int tile) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const float* w = slice + (16 * step + t) * S::WIDTH;
    if constexpr (IN_PAIRS<S>) {
      const int even = column<S>(0, g) ^ t / 2 * 4, odd = even ^ 8;  // slots 4 i + t, by the parity of i
      const float2 both[4] = {load(w + even), load(w + 4 * S::WIDTH + odd), load(w + 8 * S::WIDTH + even),
                              load(w + 12 * S::WIDTH + odd)};
      return tile == 0 ? make_float4(both[0].x, both[1].x, both[2].x, both[3].x)
                       : make_float4(both[0].y, both[1].y, both[2].y, both[3].y);
    } else {
      w += column<S>(tile, g);
      return make_float4(w[0], w[4 * S::WIDTH], w[8 * S::WIDTH], w[12 * S::WIDTH]);
    }
  }
  template <class S>
  static __device__ __forceinline__ uint2 fragment(const float* slice, int step, int tile) {
    return pack_half4(numbers<S>(slice, step, tile));
  }

 private:
  static __device__ __forceinline__ float2 load(const float* p) { return *reinterpret_cast<const float2*>(p); }
};

/* Each kind of weights has bring(), which the producer warp calls: a slice and its columns of the bias, part i arriving
   at bar[i], the bias with the first.

   A buffer aligned to 16 bytes: the copy engine orders the rows, the matrix being described to it as (K / (4 GROUP),
   GROUP, 4, N) with the strides of rows 4 GROUP, 1, GROUP (outermost first). The box is a part of a slice,
   (PART_ROWS / (4 GROUP), GROUP, 4, WIDTH); the host encodes one map for each matrix and width, that of PAIR_COLS with
   a swizzle. */
struct Fp32Weights : Fp32Slices {
  static constexpr int ARRIVALS = 1;
  struct Matrices {
    CUtensorMap qkv, attn, fc, proj;
  };

  static __device__ __forceinline__ const CUtensorMap* map(const Matrices& m, Qkv) { return &m.qkv; }
  static __device__ __forceinline__ const CUtensorMap* map(const Matrices& m, Values) { return &m.qkv; }
  static __device__ __forceinline__ const CUtensorMap* map(const Matrices& m, Attn) { return &m.attn; }
  static __device__ __forceinline__ const CUtensorMap* map(const Matrices& m, Fc) { return &m.fc; }
  static __device__ __forceinline__ const CUtensorMap* map(const Matrices& m, Proj) { return &m.proj; }

  // By one thread, before anything is asked for
  static __device__ __forceinline__ void announce(const Matrices& m) {
    for (const CUtensorMap* map : {&m.qkv, &m.attn, &m.fc, &m.proj}) prefetch_tensor_map(map);
  }

  template <class S, class P>
  static __device__ __forceinline__ void bring(float* to, float* bias_to, const Matrices& m, const float* bias,
                                               int slice, uint64_t* bar, P& pace) {
    constexpr int ROWS = S::PART_ROWS, STEP = 4 * S::Matrix::GROUP;
#pragma unroll P::UNROLL
    for (int i = 0; i < S::PARTS; ++i) {
      pace.wait(bar + i);
      if (!elect_one()) continue;
      barrier_expect(bar + i, (ROWS + (i == 0)) * S::WIDTH * 4);
      copy_box(to + i * ROWS * S::WIDTH, map(m, typename S::Matrix{}), S::column(slice), 0, 0,
               S::row(slice) / STEP + i * (ROWS / STEP), bar + i);
      if (i == 0) copy_run(bias_to, bias + S::column(slice), S::WIDTH * 4, bar);
    }
  }
  static __device__ __forceinline__ void bring_norm(float* to, const float* from, uint64_t* bar) {
    if (!elect_one()) return;
    barrier_expect(bar, 2 * D * 4);
    copy_run(to, from, 2 * D * 4, bar);
  }
  static __device__ __forceinline__ float4 vector(const float* p) { return load_early(p); }
};

/* A buffer aligned only to floats: the lanes copy single words, as many rows at a time as they hold. */
struct UnalignedWeights : Fp32Slices {
  static constexpr int ARRIVALS = 32;
  struct Matrices {
    const float* weights;
  };

  static __device__ __forceinline__ void announce(const Matrices&) {}

  template <int GROUP>
  static __device__ constexpr int slot_of(int row) {
    return row % GROUP * 4 + row / GROUP % 4 + row / (4 * GROUP) * (4 * GROUP);
  }

  template <class S, class P>
  static __device__ __forceinline__ void bring(float* to, float* bias_to, const Matrices& m, const float* bias,
                                               int slice, uint64_t* bar, P& pace) {
    constexpr int N = S::Matrix::N, GROUP = S::Matrix::GROUP, ROWS = 32 / S::WIDTH;  // at a time
    static_assert(GROUP % ROWS == 0);
    constexpr bool SWIZZLED = IN_PAIRS<S>;  // of the ROWS = 2 rows, the second is 4 slots further
    const int lane = threadIdx.x % 32, r = lane / S::WIDTH, c = lane % S::WIDTH;
    const float* from =
        m.weights + S::Matrix::OFFSET + static_cast<size_t>(S::row(slice) + r) * N + S::column(slice) + c;
    uint32_t at = shared_address(to + slot_of<GROUP>(r) * S::WIDTH + (SWIZZLED ? c ^ 8 * r : c));
#pragma unroll 1
    for (int part = 0; part < S::PARTS; ++part) {
      pace.wait(bar + part);
      if (part == 0 && lane < S::WIDTH) copy_async_4(shared_address(bias_to + lane), bias + S::column(slice) + lane);
#pragma unroll 1
      for (int i = 0; i < S::PART_ROWS; i += 4 * GROUP, from += 4 * GROUP * N, at += 4 * GROUP * S::WIDTH * 4)
#pragma unroll
        for (int row = 0; row < 4 * GROUP; row += ROWS)
          if (r < ROWS)
            copy_async_4(at + slot_of<GROUP>(row) * S::WIDTH * 4 ^ (SWIZZLED ? slot_of<GROUP>(row) / 2 % 2 * 16 : 0),
                         from + row * N);
      copy_async_arrive(shared_address(bar + part));
    }
  }
  static __device__ __forceinline__ void bring_norm(float* to, const float* from, uint64_t* bar) {
    for (int i = threadIdx.x % 32; i < 2 * D; i += 32) copy_async_4(shared_address(to + i), from + i);
    copy_async_arrive(shared_address(bar));
  }
  static __device__ __forceinline__ float4 vector(const float* p) {
    return make_float4(load_early_word(p), load_early_word(p + 1), load_early_word(p + 2), load_early_word(p + 3));
  }
};

/* The same for products in fp32 (fp32.cuh). */
struct ExactWeights : Fp32Weights {
  static constexpr bool WATCHED = false;
};
struct UnalignedExactWeights : UnalignedWeights {
  static constexpr bool WATCHED = false;
};

}  // namespace small
