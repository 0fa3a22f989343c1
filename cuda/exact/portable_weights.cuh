/* The caller's fp32 weights -> two parts of fp16 under a power of two for each slab of columns, in two passes with a
   grid barrier between them: the largest magnitude of every patch and the vectors, then the parts and the scales.

   A warp takes a patch of 32 rows by 64 columns, every lane with its 16 loads in flight. Limiter: memory bandwidth, 28
   MB read twice and 28 MB written. */
#pragma once

#include "exact/portable_memory.cuh"
#include "layernorm/layernorm.cuh"

// One of PATCHES, neighbours side by side.
struct Patch {
  int matrix, slab, source, packed, pitch;
  int maxima, count, place;  // the slab's patches in `maxima`, and which of them this is

  __device__ explicit Patch(int index) {
    constexpr int DEPTH = D / PATCH_ROWS, LONG = FFN / PATCH_ROWS;
    constexpr int ATTN = DEPTH * SLAB_ATTN, FC = DEPTH * SLAB_FC, PROJ = DEPTH * SLAB_PROJ;
    if (index < ATTN)
      place_in(index, MATRIX_QKV, 0, 0, W_QKV, PACKED_QKV, QKV, DEPTH);
    else if (index < FC)
      place_in(index, MATRIX_ATTN, ATTN, SLAB_ATTN, W_ATTN, PACKED_ATTN, D, DEPTH);
    else if (index < PROJ)
      place_in(index, MATRIX_FC, FC, SLAB_FC, W_FC, PACKED_FC, FFN, DEPTH);
    else
      place_in(index, MATRIX_PROJ, PROJ, SLAB_PROJ, W_PROJ, PACKED_PROJ, D, LONG);
  }

  // visit(round, row, column) for each of this lane's 16 groups of four columns.
  template <class Visit>
  __device__ void each(int lane, Visit visit) const {
#pragma unroll
    for (int i = 0; i < PATCH_ROWS / 2; ++i) visit(i, (2 * i + lane / 16) * pitch + lane % 16 * 4);
  }

 private:
  __device__ void place_in(int index, int matrix_, int first, int first_slab, int from, int to, int columns,
                           int depth) {
    const int slabs = columns / SLAB;
    matrix = matrix_, pitch = columns, count = depth;
    place = (index - first) / slabs;
    const int column = (index - first) % slabs;
    slab = first_slab + column;
    maxima = first + column * depth;
    source = from + place * PATCH_ROWS * columns + column * SLAB;
    packed = to + place * PATCH_ROWS * columns + column * SLAB;
  }
};

// What is not finite has no say in the scale of the others: it stays so under any.
__device__ inline float finite_magnitude(float v) { return fabsf(v) < INFINITY ? fabsf(v) : 0.f; }

// First pass. `alarms` may be null.
template <bool ALIGNED>
__device__ void measure_weights(const float* weights, const ExactMemory& memory, unsigned* alarms) {
  const int lane = threadIdx.x % 32;
  const int warps = gridDim.x * blockDim.x / 32;
#pragma unroll 1
  for (int index = (blockIdx.x * blockDim.x + threadIdx.x) / 32; index < PATCHES; index += warps) {
    const Patch patch(index);
    float4 v[PATCH_ROWS / 2];
    patch.each(lane, [&](int i, int offset) { v[i] = load4<ALIGNED>(weights + patch.source, offset); });
    float largest = 0.f;
    Observation seen;
#pragma unroll
    for (int i = 0; i < PATCH_ROWS / 2; ++i) {
      largest = fmaxf(largest, fmaxf(fmaxf(finite_magnitude(v[i].x), finite_magnitude(v[i].y)),
                                     fmaxf(finite_magnitude(v[i].z), finite_magnitude(v[i].w))));
      if (alarms) seen.add(v[i]);
    }
    largest = warp_max(largest);
    if (lane == 0) memory.maxima[patch.maxima + patch.place] = largest;
    if (alarms) seen.report(alarms, patch.matrix, PATCH_ROWS * SLAB);
  }
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < VECTORS_LEN; i += gridDim.x * blockDim.x) {
    const int place = vector_source(i);
    const float v = weights[place];
    memory.vectors[i] = v;
    if (alarms) watch_vector(alarms, place, v);
  }
}

// Second pass, by the first `blocks` blocks.
template <bool ALIGNED>
__device__ void split_weights(const float* weights, const ExactMemory& memory, int blocks) {
  const int lane = threadIdx.x % 32;
  const int warps = blocks * blockDim.x / 32;
#pragma unroll 1
  for (int index = (blockIdx.x * blockDim.x + threadIdx.x) / 32; index < PATCHES; index += warps) {
    const Patch patch(index);
    float4 v[PATCH_ROWS / 2];
    patch.each(lane, [&](int i, int offset) { v[i] = load4<ALIGNED>(weights + patch.source, offset); });
    float largest = 0.f;
    for (int i = lane; i < patch.count; i += 32) largest = fmaxf(largest, memory.maxima[patch.maxima + i]);
    const float scale = scale_for(warp_max(largest));
    patch.each(lane, [&](int i, int offset) {
      (memory.weights + (patch.packed + offset))
          .store(make_float4(v[i].x * scale, v[i].y * scale, v[i].z * scale, v[i].w * scale));
    });
  }
}

// Beside the second pass, by one block: every scale. `shared` holds 2 * SLABS + 4 floats.
__device__ inline void find_scales(const ExactMemory& memory, float* shared) {
  float* const weight = shared;        // by slab: the largest weight
  float* const bias = weight + SLABS;  // and the largest bias
  float* const norm = bias + SLABS;    // gamma1, beta1, gamma2, beta2
  constexpr int DEPTH = D / PATCH_ROWS, LONG = FFN / PATCH_ROWS;
  constexpr int TEAM = 8;  // lanes
  static_assert(SLABS % (32 / TEAM) == 0, "whole warps");
  const auto largest_of = [](const float* v, int count) {
    float largest = 0.f;
#pragma unroll 4
    for (int i = threadIdx.x % TEAM; i < count; i += TEAM) largest = fmaxf(largest, finite_magnitude(v[i]));
#pragma unroll
    for (int lanes = TEAM / 2; lanes > 0; lanes /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, lanes));
    return largest;
  };
  for (int slab = threadIdx.x / TEAM; slab < SLABS; slab += blockDim.x / TEAM) {
    const float w = largest_of(memory.maxima + min(slab, SLAB_PROJ) * DEPTH + max(slab - SLAB_PROJ, 0) * LONG,
                               slab < SLAB_PROJ ? DEPTH : LONG);
    const bool is_fc = slab >= SLAB_FC && slab < SLAB_PROJ;
    const int at = is_fc ? VECTOR_B_FC + (slab - SLAB_FC) * SLAB : VECTOR_B_QKV + slab * SLAB;
    const float b = largest_of(memory.vectors + at, is_fc || slab < SLAB_ATTN ? SLAB : 0);
    if (threadIdx.x % TEAM == 0) weight[slab] = w, bias[slab] = b;
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp < 4) {  // each beta lies behind its gamma
    const int at = (warp < 2 ? VECTOR_GAMMA1 : VECTOR_GAMMA2) + warp % 2 * D;
    float largest = 0.f;
#pragma unroll 8
    for (int i = lane; i < D; i += 32) largest = fmaxf(largest, finite_magnitude(memory.vectors[at + i]));
    largest = warp_max(largest);
    if (lane == 0) norm[warp] = largest;
  }
  __syncthreads();
  Scales& scales = *memory.scales;
  const auto bound = [&](int slab, int gamma) {
    return product_bound(norm[gamma], norm[gamma + 1], weight[slab], bias[slab]);
  };
  for (int slab = threadIdx.x; slab < SLABS; slab += blockDim.x) {
    scales.weight[slab] = scale_for(weight[slab]);
    if (slab < SLAB_ATTN) scales.qkv[slab] = scale_for(bound(slab, 0));
  }
  if (warp == 0) {
    float att = 0.f, f = 0.f;  // attention only averages values
    for (int slab = 2 * HEADS + lane; slab < SLAB_ATTN; slab += 32) att = fmaxf(att, bound(slab, 0));
    for (int slab = SLAB_FC + lane; slab < SLAB_PROJ; slab += 32) f = fmaxf(f, bound(slab, 2));
    att = warp_max(att), f = warp_max(f);
    if (lane != 0) return;
    scales.h1 = scale_for(norm_bound(norm[0], norm[1]));
    scales.h2 = scale_for(norm_bound(norm[2], norm[3]));
    scales.att = scale_for(att);
    scales.f = scale_for(f);
  }
}
