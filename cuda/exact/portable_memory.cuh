/* The memory of the exact block on sm_75 and sm_80: the grid barrier's word, the vectors as in common/workspace.cuh,
   what was found about the weights, the weights in two parts of fp16, and behind these the
   rows' own. h is LN1's output, then attention's, then LN2's; qkv and f share their place; x1 lives in output. */
#pragma once

#include "common/workspace.cuh"
#include "exact/exact.cuh"

// Weights are scaled by slabs of columns: one head's Q, K or V is a slab.
constexpr int SLAB = 64;
constexpr int SLAB_ATTN = QKV / SLAB, SLAB_FC = SLAB_ATTN + D / SLAB, SLAB_PROJ = SLAB_FC + FFN / SLAB;
constexpr int SLABS = SLAB_PROJ + D / SLAB;

// All powers of two.
struct Scales {
  float weight[SLABS];
  float qkv[SLAB_ATTN];
  float h1, h2, att, f;
};

constexpr int PATCH_ROWS = 32;  // of a slab, read by one warp
constexpr int PATCHES = PACKED_LEN / (PATCH_ROWS * SLAB);

constexpr size_t round_up(size_t bytes) { return (bytes + 255) / 256 * 256; }
constexpr size_t VECTORS_AT = 256;
constexpr size_t MAXIMA_AT = VECTORS_AT + round_up(VECTORS_LEN * 4);
constexpr size_t SCALES_AT = MAXIMA_AT + round_up(PATCHES * 4);
constexpr size_t WEIGHTS_AT = SCALES_AT + round_up(sizeof(Scales));
constexpr size_t EXACT_FIXED = WEIGHTS_AT + 2 * round_up(PACKED_LEN * 2);
constexpr size_t EXACT_PER_ROW = 2 * (D + FFN) * 2;

// A matrix in two parts, hi and lo, each fp16 and laid out as the matrix.
struct Parts {
  __half* hi;
  size_t apart;
  __device__ __half* operator[](int part) const { return hi + part * apart; }
  __device__ Parts operator+(size_t offset) const { return {hi + offset, apart}; }

  // Four neighbours of scaled values.
  __device__ void store(float4 v) const {
    const Split a = split(v.x, v.y), b = split(v.z, v.w);
    *reinterpret_cast<uint2*>(hi) = make_uint2(a.hi, b.hi);
    *reinterpret_cast<uint2*>(hi + apart) = make_uint2(a.lo, b.lo);
  }
};

struct ExactMemory {
  float* vectors;
  float* maxima;  // by slab, then by patch from the top: the largest finite magnitude
  Scales* scales;
  Parts weights;  // (PACKED_LEN)
  Parts h;        // (rows, D)
  Parts qkv;      // (rows, 3 D)
  Parts f;        // (rows, FFN)

  __device__ ExactMemory(unsigned char* memory, int rows_)
      : vectors(reinterpret_cast<float*>(memory + VECTORS_AT)),
        maxima(reinterpret_cast<float*>(memory + MAXIMA_AT)),
        scales(reinterpret_cast<Scales*>(memory + SCALES_AT)),
        weights{reinterpret_cast<__half*>(memory + WEIGHTS_AT), PACKED_LEN} {
    const size_t rows = rows_;
    h = {reinterpret_cast<__half*>(memory + EXACT_FIXED), rows * D};
    qkv = {h.hi + 2 * rows * D, rows * QKV};
    f = {h.hi + 2 * rows * D, rows * FFN};
  }
};

// Takes the scales of both operands back: two factors, because one could leave fp32.
struct Undo {
  float first, second;
  __device__ Undo(float a, float b) {
    const int exponent = 254 - static_cast<int>(__float_as_uint(a) >> 23) - static_cast<int>(__float_as_uint(b) >> 23);
    first = power(exponent / 2);
    second = power(exponent - exponent / 2);
  }
  __device__ float operator()(float v) const { return v * first * second; }

 private:
  static __device__ float power(int exponent) { return __uint_as_float(static_cast<unsigned>(exponent + 127) << 23); }
};
