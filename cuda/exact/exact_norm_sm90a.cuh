/* The stages between the products: LayerNorm into images, residuals, and the bounds that the scales come from.
   One warp has one row, 24 values a lane: columns 128 i + 4 lane. Limiter: latency for few rows, L2 for many. */
#pragma once

#include "common/reduce.cuh"
#include "common/sync_sm90a.cuh"
#include "exact/exact_memory_sm90a.cuh"

namespace exact90 {

constexpr int PIECES = D / 128;

__device__ __forceinline__ float magnitude(float4 v) { return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))); }
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int lanes = 16; lanes; lanes /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, lanes));
  return v;
}

// gamma and beta of a lane's columns, and the scale of LayerNorm's result. They may lie in the caller's buffer, unaligned.
struct Norm {
  float4 gamma[PIECES], beta[PIECES];
  float scale;
  int lane;

  __device__ __forceinline__ Norm(const float* g, const float* b, bool aligned, int lane) : lane(lane) {
    float largest_g = 0.f, largest_b = 0.f;
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      const int c = 128 * i + lane * 4;
      gamma[i] = aligned ? load_4(g + c) : make_float4(load(g + c), load(g + c + 1), load(g + c + 2), load(g + c + 3));
      beta[i] = aligned ? load_4(b + c) : make_float4(load(b + c), load(b + c + 1), load(b + c + 2), load(b + c + 3));
    }
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      largest_g = fmaxf(largest_g, magnitude(gamma[i]));
      largest_b = fmaxf(largest_b, magnitude(beta[i]));
    }
    scale = scale_for(norm_bound(warp_max(largest_g), warp_max(largest_b)));
  }

  // Row `row` of the images at h
  __device__ __forceinline__ void write(float4 (&v)[PIECES], unsigned char* h, int row) const {
    float sum = 0.f, squares = 0.f;
#pragma unroll
    for (int i = 0; i < PIECES; i++) sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
    const float mean = warp_sum(sum) * (1.f / D);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      v[i] = make_float4(v[i].x - mean, v[i].y - mean, v[i].z - mean, v[i].w - mean);
      squares += (v[i].x * v[i].x + v[i].y * v[i].y) + (v[i].z * v[i].z + v[i].w * v[i].w);
    }
    const float rstd = 1.f / sqrtf(warp_sum(squares) * (1.f / D) + LN_EPS);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      const float4 g = gamma[i], b = beta[i];
      store(h, row, i, split(fmaf(v[i].x * rstd, g.x, b.x) * scale, fmaf(v[i].y * rstd, g.y, b.y) * scale),
            split(fmaf(v[i].z * rstd, g.z, b.z) * scale, fmaf(v[i].w * rstd, g.w, b.w) * scale));
    }
  }
  // Rows past the end are zeros: whatever the products make of them stays finite.
  __device__ __forceinline__ void write_zeros(unsigned char* h, int row) const {
#pragma unroll
    for (int i = 0; i < PIECES; i++) store(h, row, i, Split{0, 0}, Split{0, 0});
  }
  __device__ __forceinline__ void store(unsigned char* h, int row, int i, Split a, Split b) const {
    const int column = 128 * i + lane * 4;
    unsigned char* to = h + activation_at(D / 64, row, column / 64, 0) + swizzle_128(row % 64, column % 64 / 8) + column % 8 * 2;
    *reinterpret_cast<uint2*>(to) = make_uint2(a.hi, b.hi);
    *reinterpret_cast<uint2*>(to + 2 * IMAGE) = make_uint2(a.lo, b.lo);
  }
};

__device__ __forceinline__ void add(float4& a, float4 b) { a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w; }

// A warp's rows. The loop goes round equally often for all warps: after another kind ptxas serialises every wgmma of the
// kernel (C7520).
template <class Work>
__device__ __forceinline__ void each_row(int rows, int warp, Work work) {
  for (int top = crew.rank; top < rows; top += crew.size * WARPS)
    if (top + warp * crew.size < rows) work(top + warp * crew.size);
}

// h = LN1(x)
__device__ __forceinline__ void first_norm(const ExactArgs& args) {
  const Memory memory(args);
  const bool cast = args.phases & EXACT_CAST;
  const float* gamma = cast ? args.weights + GAMMA1 : memory.vectors() + V_GAMMA1;
  const float* beta = cast ? args.weights + BETA1 : memory.vectors() + V_BETA1;
  const int thread = thread_index(), lane = thread % 32;
  const Norm norm(gamma, beta, !cast || reinterpret_cast<size_t>(args.weights) % 16 == 0, lane);
  each_row(memory.rows, thread / 32, [&](int row) {
    if (row >= args.rows) return norm.write_zeros(memory.h(), row);
    float4 v[PIECES];
#pragma unroll
    for (int i = 0; i < PIECES; i++) v[i] = load_4(args.x + static_cast<size_t>(row) * D + 128 * i + 4 * lane);
    norm.write(v, memory.h(), row);
  });
}

// residual + bias + the parts of a product, for one row
__device__ __forceinline__ void sum_row(float4 (&v)[PIECES], const float* residual, const float* bias, const float* partial,
                                        size_t split_step, int splits, int row, int lane) {
  const size_t at = static_cast<size_t>(row) * D + 4 * lane;
#pragma unroll
  for (int i = 0; i < PIECES; i++) v[i] = load_4(partial + at + 128 * i);
  for (int s = 1; s < splits; s++)
#pragma unroll
    for (int i = 0; i < PIECES; i++) add(v[i], load_4(partial + s * split_step + at + 128 * i));
#pragma unroll
  for (int i = 0; i < PIECES; i++) {
    add(v[i], load_4(bias + 128 * i + 4 * lane));
    add(v[i], load_4(residual + at + 128 * i));
  }
}

// x1 = x + attention W_attn + b_attn, h = LN2(x1)
__device__ __forceinline__ void second_norm(const ExactArgs& args, int splits) {
  const Memory memory(args);
  const int thread = thread_index(), lane = thread % 32;
  const float* vectors = memory.vectors();
  const Norm norm(vectors + V_GAMMA2, vectors + V_BETA2, true, lane);
  each_row(memory.rows, thread / 32, [&](int row) {
    if (row >= args.rows) return norm.write_zeros(memory.h(), row);
    float4 v[PIECES];
    sum_row(v, args.x, vectors + V_B_ATTN, memory.partial(), static_cast<size_t>(memory.rows) * D, splits, row, lane);
#pragma unroll
    for (int i = 0; i < PIECES; i++)
      __stcg(reinterpret_cast<float4*>(memory.x1() + static_cast<size_t>(row) * D + 128 * i + 4 * lane), v[i]);
    norm.write(v, memory.h(), row);
  });
}

// output = x1 + f W_proj + b_proj
__device__ __forceinline__ void finish_rows(const ExactArgs& args, int splits) {
  const Memory memory(args);
  const int thread = thread_index(), lane = thread % 32;
  each_row(args.rows, thread / 32, [&](int row) {
    float4 v[PIECES];
    sum_row(v, memory.x1(), memory.vectors() + V_B_PROJ, memory.partial(), static_cast<size_t>(memory.rows) * D, splits, row, lane);
#pragma unroll
    for (int i = 0; i < PIECES; i++)
      *reinterpret_cast<float4*>(args.output + static_cast<size_t>(row) * D + 128 * i + 4 * lane) = v[i];
  });
}

/* The scales of h = LN(.) and of what comes from h W + b, by the CONSUMERS threads. A column's inverse scale times 2^14
   bounds its weights. `reduce`: 4 WARPS floats of shared memory. */
struct Scales {
  float norm, product;

  template <int N>
  static __device__ __forceinline__ float largest(const float* p, int thread) {
    float m = 0.f;
#pragma unroll
    for (int i = 0; i < N / CONSUMERS; i++) m = fmaxf(m, fabsf(load(p + i * CONSUMERS + thread)));
    return warp_max(m);
  }
  template <int N>
  static __device__ __forceinline__ Scales of(const float* gamma, const float* beta, const float* inverses, const float* biases,
                                              float* reduce) {
    static_assert(N % CONSUMERS == 0 && D % CONSUMERS == 0, "the same number for every thread");
    const int thread = thread_index();
    const float mine[4] = {largest<D>(gamma, thread), largest<D>(beta, thread), largest<N>(inverses, thread),
                           largest<N>(biases, thread)};
    if (thread % 32 == 0)
      for (int i = 0; i < 4; i++) reduce[i * WARPS + thread / 32] = mine[i];
    named_barrier_sync(CONSUMER_BARRIER, CONSUMERS);
    float all[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
    for (int i = 0; i < 4 * WARPS; i++) all[i / WARPS] = fmaxf(all[i / WARPS], reduce[i]);
    return {scale_for(norm_bound(all[0], all[1])), scale_for(product_bound(all[0], all[1], all[2] * 16384.f, all[3]))};
  }
};

}  // namespace exact90
