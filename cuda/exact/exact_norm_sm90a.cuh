/* The stages between the products: LayerNorm into images, residuals, and the bounds that the scales come from.
   One warp has one row, 24 values a lane: columns 128 i + 4 lane. Limiter: latency for few rows, L2 for many. */
#pragma once

#include "common/reduce.cuh"
#include "common/sync_sm90a.cuh"
#include "exact/exact_memory_sm90a.cuh"

namespace exact90 {

constexpr int PIECES = D / 128;

__device__ __forceinline__ void add(float4& a, float4 b) { a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w; }

// 24 values of a lane; what is asked for before a barrier of the grid has come when it is over.
struct Row {
  float4 v[PIECES];

  __device__ __forceinline__ void fetch(const float* row, int lane) {
#pragma unroll
    for (int i = 0; i < PIECES; i++) v[i] = load_4(row + 4 * static_cast<unsigned>(lane) + 128 * i);
  }
  __device__ __forceinline__ void zero() {
#pragma unroll
    for (int i = 0; i < PIECES; i++) v[i] = make_float4(0.f, 0.f, 0.f, 0.f);
  }
  __device__ __forceinline__ void fetch_unaligned(const float* row, int lane) {
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      const float* p = row + 128 * i + 4 * lane;
      v[i] = make_float4(load(p), load(p + 1), load(p + 2), load(p + 3));
    }
  }
  __device__ __forceinline__ void add_row(const Row& other) {
#pragma unroll
    for (int i = 0; i < PIECES; i++) add(v[i], other.v[i]);
  }
  // Subtracts the mean; returns the variance as LayerNorm has it.
  __device__ __forceinline__ float center() {
    float sum = 0.f, squares = 0.f;
#pragma unroll
    for (int i = 0; i < PIECES; i++) sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
    const float mean = warp_sum(sum) * (1.f / D);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      v[i] = make_float4(v[i].x - mean, v[i].y - mean, v[i].z - mean, v[i].w - mean);
      squares += (v[i].x * v[i].x + v[i].y * v[i].y) + (v[i].z * v[i].z + v[i].w * v[i].w);
    }
    return warp_sum(squares) * (1.f / D) + LN_EPS;
  }
  __device__ __forceinline__ float largest() const {
    float m = 0.f;
#pragma unroll
    for (int i = 0; i < PIECES; i++) m = fmaxf(m, magnitude(v[i]));
    return warp_max(m);
  }
};

// gamma and beta of a lane's columns. They may lie in the caller's buffer, unaligned.
struct Norm {
  Row gamma, beta;
  int lane;

  __device__ __forceinline__ Norm(const float* g, const float* b, bool aligned, int lane) : lane(lane) {
    if (aligned) {
      gamma.fetch(g, lane), beta.fetch(b, lane);
    } else {
      gamma.fetch_unaligned(g, lane), beta.fetch_unaligned(b, lane);
    }
  }
  // The scale of the result
  __device__ __forceinline__ float scale() const { return scale_for(norm_bound(gamma.largest(), beta.largest())); }

  // Row `row` of the images at h
  __device__ __forceinline__ void write(Row& x, unsigned char* h, int row, float scale, int dry = 0) const {
    float4(&v)[PIECES] = x.v;
    const float rstd = 1.f / sqrtf(x.center());
    unsigned char* to = place(h, row);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
      const float4 g = gamma.v[i], b = beta.v[i];
      const Split left = split(fmaf(v[i].x * rstd, g.x, b.x) * scale, fmaf(v[i].y * rstd, g.y, b.y) * scale),
                  right = split(fmaf(v[i].z * rstd, g.z, b.z) * scale, fmaf(v[i].w * rstd, g.w, b.w) * scale);
      if (!dry) store(to, i, left, right);
    }
  }
  // Rows past the end are zeros: whatever the products make of them stays finite.
  __device__ __forceinline__ void write_zeros(unsigned char* h, int row) const {
    unsigned char* to = place(h, row);
#pragma unroll
    for (int i = 0; i < PIECES; i++) store(to, i, Split{0, 0}, Split{0, 0});
  }
  __device__ __forceinline__ unsigned char* place(unsigned char* h, unsigned row) const {
    const unsigned l = lane;  // columns 4 lane and up of image lane / 16; then two images on
    return h + activation_at(D / 64, row, l / 16, 0) + swizzle<128>(row % 64, l % 16 / 2) + l % 2 * 8;
  }
  __device__ __forceinline__ static void store(unsigned char* to, int i, Split a, Split b) {
    *reinterpret_cast<uint2*>(to + i * (8 * IMAGE)) = make_uint2(a.hi, b.hi);
    *reinterpret_cast<uint2*>(to + i * (8 * IMAGE) + 2 * IMAGE) = make_uint2(a.lo, b.lo);
  }
};

// The rows of a warp: row, row + step, .. The loop goes round equally often for all warps: after another kind ptxas serialises
// every wgmma of the kernel (C7520).
template <class Work>
__device__ __forceinline__ void each_row(int rows, int warp, Work work) {
#pragma unroll 1
  for (int top = crew.rank; top < rows; top += crew.size * WARPS)
    if (top + warp * crew.size < rows) work(top + warp * crew.size);
}
// The same; while enter() would wait, the first row is done once with nothing stored, so that the instructions are there: work(row, dry).
template <class Enter, class Work>
__device__ __forceinline__ void each_row(int rows, int warp, Enter enter, Work work) {
  int top = crew.rank;
#pragma unroll 1
  for (int dry = anew(1); dry || top < rows;) {
    if (top + warp * crew.size < rows) work(top + warp * crew.size, dry);
    if (dry) {
      enter();
      dry = anew(0);
    } else {
      top += crew.size * WARPS;
    }
  }
}

// Rows first, first + step, .. of h = LN1(x), by a warp; each is asked for a row earlier.
struct FirstNorm {
  const ExactArgs& args;
  int step;
  Row next;
  Norm norm;

  __device__ __forceinline__ FirstNorm(const ExactArgs& args, int first, int step)
      : args(args), step(step), next(begin(args, first)), norm(norm_of(args, thread_index() % 32)) {}
  __device__ __forceinline__ void write(const Memory& memory, int row, float scale) {
    Row x = next;
    if (row + step < args.rows) next.fetch(args.x + static_cast<size_t>(row + step) * D, norm.lane);
    if (row >= args.rows) return norm.write_zeros(memory.h(), row);
    norm.write(x, memory.h(), row, scale);
  }

 private:
  static __device__ __forceinline__ Row begin(const ExactArgs& args, int first) {
    Row row;
    row.fetch(args.x + static_cast<size_t>(min(first, args.rows - 1)) * D, thread_index() % 32);
    return row;
  }
  static __device__ __forceinline__ Norm norm_of(const ExactArgs& args, int lane) {
    const bool cast = args.phases & EXACT_CAST;
    const float* gamma = cast ? args.weights + GAMMA1 : Memory(args).vectors() + V_GAMMA1;
    static_assert(BETA1 - GAMMA1 == D && V_BETA1 - V_GAMMA1 == D, "beta behind gamma");
    return Norm(gamma, gamma + D, !cast || reinterpret_cast<size_t>(args.weights) % 16 == 0, lane);
  }
};

// h = LN1(x). meanwhile() is called when the first loads have left.
template <class Meanwhile>
__device__ __forceinline__ void first_norm(const ExactArgs& args, Meanwhile meanwhile) {
  const Memory memory(args);
  const int warp = thread_index() / 32;
  FirstNorm rows(args, crew.rank + warp * crew.size, crew.size * WARPS);
  meanwhile();
  const float scale = rows.norm.scale();
  each_row(memory.rows, warp, [&](int row) { rows.write(memory, row, scale); });
}

/* Rows of residual + bias + the parts of a product. The residual of the first is asked for before the barrier behind the
   product, and that of each further one a row earlier. TOGETHER parts are on their way at a time. */
template <int TOGETHER>
struct PartialRows {
  const float* residual;
  Row next;
  int rows, lane, warp;

  __device__ __forceinline__ PartialRows(const float* residual, int rows) : residual(residual), rows(rows) {
    const int thread = thread_index();
    lane = thread % 32, warp = thread / 32;
    prefetch(crew.rank + warp * crew.size);
  }
  __device__ __forceinline__ void prefetch(int row) {
    if (row < rows) next.fetch(residual + static_cast<size_t>(row) * D, lane);
  }

  __device__ __forceinline__ Row of(int row, const float* bias, const float* partial, size_t split_step, int splits, int dry) {
    partial += static_cast<size_t>(row) * D;
    Row sum;
    sum.fetch(bias, lane);
#pragma unroll 1
    for (int s = 0; s < splits; s += TOGETHER) {
      Row part[TOGETHER];
#pragma unroll
      for (int i = 0; i < TOGETHER; i++)
        if (s + i < splits) part[i].fetch(partial + (s + i) * split_step, lane);
#pragma unroll
      for (int i = 0; i < TOGETHER; i++)
        if (s + i < splits) sum.add_row(part[i]);
    }
    sum.add_row(next);
    if (!dry) prefetch(row + crew.size * WARPS);
    return sum;
  }
};

// x1 = x + attention W_attn + b_attn, h = LN2(x1). enter() waits until attention W_attn is there.
template <class Enter>
__device__ __forceinline__ void second_norm(const ExactArgs& args, int splits, float scale, Enter enter) {
  const Memory memory(args);
  const float* vectors = memory.vectors();
  PartialRows<2> sums(args.x, args.rows);
  const Norm norm(vectors + V_GAMMA2, vectors + V_BETA2, true, sums.lane);
  each_row(memory.rows, sums.warp, enter, [&](int row, int dry) {
    if (row >= args.rows) {
      if (!dry) norm.write_zeros(memory.h(), row);
      return;
    }
    Row x1 = sums.of(row, vectors + V_B_ATTN, memory.partial(), static_cast<size_t>(memory.rows) * D, splits, dry);
    float* to = memory.x1() + static_cast<size_t>(row) * D + 4 * sums.lane;
#pragma unroll
    for (int i = 0; i < PIECES; i++)
      if (!dry) __stcg(reinterpret_cast<float4*>(to + 128 * i), x1.v[i]);
    norm.write(x1, memory.h(), row, scale, dry);
  });
}

// output = x1 + f W_proj + b_proj
template <class Enter>
__device__ __forceinline__ void finish_rows(const ExactArgs& args, int splits, Enter enter) {
  const Memory memory(args);
  PartialRows<4> sums(memory.x1(), args.rows);
  each_row(args.rows, sums.warp, enter, [&](int row, int dry) {
    const Row sum = sums.of(row, memory.vectors() + V_B_PROJ, memory.partial(), static_cast<size_t>(memory.rows) * D, splits, dry);
    float* to = args.output + static_cast<size_t>(row) * D + 4 * sums.lane;
#pragma unroll
    for (int i = 0; i < PIECES; i++)
      if (!dry) *reinterpret_cast<float4*>(to + 128 * i) = sum.v[i];
  });
}

/* The scales of h = LN(.) and of what comes from h W + b, its V by itself: small Q and K keep their bits beside it. Warps that have nothing
   else to do find the largest gamma, beta, inverse scale and bias while the product is computed; a column's inverse scale times 2^14
   bounds its weights. */
struct Scales {
  float norm, product, value;

  __device__ __forceinline__ float of_column(int column) const { return column < 2 * D ? product : value; }

  // By SCALE_WARPS warps, `thread` counted among theirs; `n` scales and biases.
  static __device__ __forceinline__ void find(uint32_t shared, const float* gamma, const float* beta, const float* inverses,
                                              const float* biases, int n, int half, int thread) {
    const uint32_t to = shared + S_SCALES + (half * SCALE_WARPS + thread / 32) * 32;
    const int first = half ? n : 2 * D;
#pragma unroll 1
    for (int i = 0; i < 6; i++) {  // one piece of code for all: it is run once
      const float* from = i == 0 ? gamma : i == 1 ? beta : (i % 2 ? biases : inverses) + (i < 4 ? 0 : first);
      const float m = largest(from, i < 2 ? D : i < 4 ? first : n - first, thread);
      if (thread % 32 == 0) store_shared_word(to + 4 * i, __float_as_uint(m));
    }
    if (thread % 32 == 0) mbarrier_arrive(shared + BAR_SCALES);
  }
  // By whoever needs them; `parity`: of how often some have been found before.
  static __device__ __forceinline__ Scales found(uint32_t shared, int half) { return found(shared, half, half); }
  static __device__ __forceinline__ Scales found(uint32_t shared, int half, int parity) {
    mbarrier_wait_or_fault(shared + BAR_SCALES, parity);
    float4 all = make_float4(0.f, 0.f, 0.f, 0.f);
    float2 values = make_float2(0.f, 0.f);
#pragma unroll
    for (int i = 0; i < SCALE_WARPS; i++) {
      const uint32_t from = shared + S_SCALES + (half * SCALE_WARPS + i) * 32;
      const float4 v = load_shared_4(from);
      const float2 w = load_shared_2(from + 16);
      all = make_float4(fmaxf(all.x, v.x), fmaxf(all.y, v.y), fmaxf(all.z, v.z), fmaxf(all.w, v.w));
      values = make_float2(fmaxf(values.x, w.x), fmaxf(values.y, w.y));
    }
    const auto product = [&](float inverse, float bias) { return scale_for(product_bound(all.x, all.y, inverse * 16384.f, bias)); };
    return {scale_for(norm_bound(all.x, all.y)), product(all.z, all.w), product(values.x, values.y)};
  }

 private:
  static __device__ __forceinline__ float largest(const float* p, int n, int thread) {
    constexpr int STEP = SCALE_WARPS * 32 * 4;
    static_assert(D % STEP == 0 && FFN % STEP == 0, "the same number for every thread");
    float m = 0.f;
#pragma unroll 2
    for (int i = thread * 4; i < n; i += STEP) m = fmaxf(m, magnitude(load_4(p + i)));
    return warp_max(m);
  }
};

}  // namespace exact90
