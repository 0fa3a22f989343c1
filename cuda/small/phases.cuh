/* The phases of the block, each on one slice of its weight matrix: LN + QKV and LN + FC (dense), attention + output
   projection (attend), proj (project). A slice's product is summed over the warps through shared memory, in the order
   of the warps, and over CTAs in the order of the splits: the same bits every time. */
#pragma once

#include "small/attention.cuh"
#include "small/exchange.cuh"
#include "small/layernorm.cuh"
#include "small/shared.cuh"
#include "small/watch.cuh"

namespace small {

template <int MT, int TILES>
__device__ __forceinline__ void zero(float (&sums)[MT][TILES][4]) {
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int u = 0; u < TILES; ++u)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][u][i] = 0;
}

/* One step of the MMA for all row tiles and the whole width of the slice. */
template <class S, class W, int MT, class Seen>
__device__ __forceinline__ void multiply(float (&sums)[MT][S::TILES][4], const uint32_t (&a)[MT][4],
                                         const typename W::Element* slice, int step, Seen& seen) {
#pragma unroll
  for (int u = 0; u < S::TILES; ++u) {
    const uint2 b = W::template fragment<S>(slice, step, u);
    seen.add(b.x, b.y);
#pragma unroll
    for (int m = 0; m < MT; ++m) mma(sums[m][u], a[m], b);
  }
}

/* Sums of 16 MT rows to shared memory, row-major. */
template <int MT, int TILES>
__device__ __forceinline__ void lay_down(float* to, const float (&sums)[MT][TILES][4]) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int u = 0; u < TILES; ++u)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        *reinterpret_cast<float2*>(to + (16 * m + 8 * r + g) * 8 * TILES + 8 * u + 2 * t) =
            make_float2(sums[m][u][2 * r], sums[m][u][2 * r + 1]);
}

__device__ __forceinline__ float4 add(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

__device__ __forceinline__ float4 quad(const float* p) { return *reinterpret_cast<const float4*>(p); }

/* Four columns of a row, summed over N places that lie `stride` floats apart. */
template <int N>
__device__ __forceinline__ float4 pick_up(const float* first, int stride) {
  float4 sum = quad(first);
#pragma unroll
  for (int w = 1; w < N; ++w) sum = add(sum, quad(first + w * stride));
  return sum;
}

/* tanh GELU: z / (1 + exp(-2 u)), u = sqrt(2 / pi) (z + 0.044715 z^3) */
__device__ __forceinline__ float gelu(float z) {
  const float u = z * (1.0f + 0.044715f * z * z);
  return __fdividef(z, 1.0f + exp2f(u * (-2.0f * 0.7978845608f * 1.44269504f)));
}

/* A of one MMA step from vectors of two steps: rows 8 j + g in v[j]. */
template <int MT>
__device__ __forceinline__ void fragments(uint32_t (&a)[MT][4], const uint4 (&v)[2 * MT], bool second) {
#pragma unroll
  for (int m = 0; m < MT; ++m) {
    const uint4 p = v[2 * m], q = v[2 * m + 1];
    a[m][0] = second ? p.z : p.x, a[m][1] = second ? q.z : q.x, a[m][2] = second ? p.w : p.y,
    a[m][3] = second ? q.w : q.y;
  }
}

/* This warp's rows and features of LN's output, as normalize_row sends it. */
template <class Mine>
__device__ __forceinline__ void receive_fragments(const Blocked<__half, D>& h, int rows,
                                                  uint32_t (&a)[D / Mine::DEPTHS / 16][Mine::TILES][4]) {
  constexpr int FEATURES = D / Mine::DEPTHS, VECTORS = 2 * Mine::TILES;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int k = FEATURES * Mine::depth();
  uint4 in[FEATURES / 32][VECTORS];
  receive(reinterpret_cast<uint4(&)[FEATURES / 32 * VECTORS]>(in), h.at(rows - 1, k), [&](int i) -> const void* {
    const int row = Mine::row() + i % VECTORS * 8 + g;
    return row < rows ? h.at(row, k + i / VECTORS * 32 + 8 * t) : nullptr;
  });
#pragma unroll
  for (int s = 0; s < FEATURES / 16; ++s) fragments<Mine::TILES>(a[s], in[s / 2], s % 2);
}

/* What of a slice's result this thread finishes: four columns of a row, if that row is there. */
template <class S>
struct Quad {
  int row = threadIdx.x / (S::WIDTH / 4), c = threadIdx.x % (S::WIDTH / 4) * 4;
};

/* The end of a product whose K is split over CTAs. Each row is finished by one of them, which adds the others' sums in
   their order; `sum` is this CTA's at first. Returns whether this thread holds a finished one. */
template <class S, int MT>
__device__ __forceinline__ bool meet(float4& sum, float (&sums)[4][MAX_ROWS][D], int split, int row, int column) {
  if constexpr (S::SPLITS == 1) return true;
  if (row / (16 * MT / S::SPLITS) != split) {
    send(&sums[split][row][column], sum);
    return false;
  }
  float4 total = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int s = 0; s < S::SPLITS; ++s) total = add(total, s == split ? sum : receive_one(&sums[s][row][column]));
  sum = total;
  return true;
}

/* a W + bias, `a` being this warp's share: QKV and FC. `finish` gets row, column and the sum of four columns. */
template <class S, class W, class Mine, class Finish>
__device__ __forceinline__ void dense(const uint32_t (&a)[D / Mine::DEPTHS / 16][Mine::TILES][4],
                                      const typename W::Element* weights, Summands area, uint64_t* arrived,
                                      uint32_t parity, const float* bias, int slice, int rows, WatchOf<W>& watch,
                                      Finish finish) {
  constexpr int STEPS = D / Mine::DEPTHS / 16;
  const Quad<S> mine;
  float sums[Mine::TILES][S::TILES][4];
  typename WatchOf<W>::Look look;
  zero(sums);
  barrier_wait(arrived, parity);
#pragma unroll
  for (int s = 0; s < STEPS; ++s) multiply<S, W>(sums, a[s], weights, STEPS * Mine::depth() + s, look);
  __syncwarp();
  lay_down(area.of(Mine::depth()) + Mine::row() * S::WIDTH, sums);
  __syncthreads();
  if (mine.row < rows)
    finish(mine.row, S::column(slice) + mine.c,
           add(pick_up<Mine::DEPTHS>(area.first + mine.row * S::WIDTH + mine.c, area.stride), quad(bias + mine.c)));
  watch.template take<S, 1>(look);
}

/* Attention of this slice's heads, times its part of the output projection, + bias + x: x1. Where that is a sum over
 * splits, only this slice's summand. */
template <class S, class W, int MT, int HALVES, class Shared>
__device__ __forceinline__ void attend(Shared& shared, uint64_t* arrived, uint32_t parity, Exchange& exchange,
                                       const float* x, int slice, int rows, int seq_len, bool causal,
                                       WatchOf<W>& watch) {
  constexpr int HEADS_HERE = S::ROWS / HEAD_DIM;
  const int warp = threadIdx.x / 32, head = warp / MT, tile = warp % MT;  // of the slice's heads, of the queries
  const int split = S::split(slice), column = S::column(slice);
  const Quad<S> mine;
  float4 residual = make_float4(0, 0, 0, 0);
  if (S::SPLITS == 1 && mine.row < rows) residual = load_early(x + mine.row * D + column + mine.c);
  uint32_t a[4][1][4];
  const int query = 16 * tile + threadIdx.x % 32 / 4;
  const Keys keys[2] = {Keys(query, rows, seq_len, causal), Keys(query + 8, rows, seq_len, causal)};
  Operands<MT> in;
  if constexpr (MT == 1)
    load_operands<HALVES>(in, exchange, head, rows);
  else
    load_operands<MT, Shared::K_PITCH, Shared::V_PITCH>(in, exchange, split * HEADS_HERE, head, 16 * tile, rows,
                                                        shared.staged_k(), shared.staged_v());
  attention<MT, HALVES>(in, keys, reinterpret_cast<uint32_t (&)[4][4]>(a));
  float sums[1][S::TILES][4];
  typename WatchOf<W>::Look look;
  zero(sums);
  barrier_wait(arrived, parity);
#pragma unroll
  for (int s = 0; s < 4; ++s) multiply<S, W>(sums, a[s], shared.attn, 4 * head + s, look);
  lay_down(shared.attn_sums[warp], sums);
  __syncthreads();
  if (mine.row < rows) {
    constexpr int STRIDE = sizeof shared.attn_sums[0] / 4;
    const float4 sum =
        pick_up<HEADS_HERE>(shared.attn_sums[mine.row / 16] + mine.row % 16 * S::WIDTH + mine.c, MT * STRIDE);
    if constexpr (S::SPLITS == 1)
      send(exchange.x1.at(mine.row, column + mine.c), add(add(sum, quad(shared.b_attn + mine.c)), residual));
    else
      send(&exchange.attn_sums[split][mine.row][column + mine.c], sum);
  }
  watch.template take<S, MT>(look);
}

/* The row of x1 from its summands, in their order, and `base`, x + bias, in shared memory; this lane's part, which is
 * sent on as well. */
template <int SPLITS>
__device__ __forceinline__ Row assemble(Exchange& exchange, const float* base, int row) {
  Row x1;
#pragma unroll
  for (int half = 0; half < 6; half += 3) {  // not the whole row at once, for the registers' sake
    uint4 in[3 * SPLITS];
    receive(in, nullptr, [&](int i) { return &exchange.attn_sums[i / 3][row][Row::feature(half + i % 3)]; });
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      float4 sum = floats(in[i]);
#pragma unroll
      for (int s = 1; s < SPLITS; ++s) sum = add(sum, floats(in[3 * s + i]));
      x1.v[half + i] = add(sum, quad(base + Row::feature(half + i)));
      send(exchange.x1.at(row, Row::feature(half + i)), x1.v[half + i]);
    }
  }
  return x1;
}

/* This slice's part of f W + bias + x1: the output. `last`: this CTA has no other slice. */
template <class S, class W, int MT, class Mine, class Shared>
__device__ __forceinline__ void project(Shared& shared, uint64_t* arrived, uint32_t parity, Exchange& exchange,
                                        int slice, int rows, float* output,
                                        WatchOf<W>& watch, Guard& guard, bool last) {
  constexpr int DEPTH = S::ROWS / Mine::DEPTHS, BLOCKS = DEPTH / 32,
                BATCH = MT > 1 || BLOCKS < 8 ? 2 * Mine::GROUPS : 8, VECTORS = 2 * Mine::TILES;
  static_assert(BLOCKS % BATCH == 0);
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int split = S::split(slice), column = S::column(slice);
  const Quad<S> mine;
  uint4 residual = make_uint4(0, 0, 0, 0);
  if (mine.row < rows)
    residual = load_strong(exchange.x1.at(mine.row, column + mine.c));  // there already: LN2's output followed from it
  const int k = S::row(slice) + Mine::depth() * DEPTH;
  const __half* sample = rows > FEW_ROWS ? exchange.f.at(rows - 1, k + lane * 8 % DEPTH) : nullptr;
  constexpr int CHAINS = MT == 1 ? 4 : 1;  // of sums that do not wait for one another
  float sums[CHAINS][Mine::TILES][S::TILES][4];
  typename WatchOf<W>::Look look;
#pragma unroll
  for (int chain = 0; chain < CHAINS; ++chain) zero(sums[chain]);
#pragma unroll
  for (int first = 0; first < BLOCKS; first += BATCH) {
    uint4 in[BATCH][VECTORS];
    receive(reinterpret_cast<uint4(&)[BATCH * VECTORS]>(in), first ? nullptr : sample, [&](int i) -> const void* {
      const int r = Mine::row() + 8 * (i % VECTORS) + g;
      return r < rows ? exchange.f.at(r, k + 32 * (first + i / VECTORS) + 8 * t) : nullptr;
    });
    if (first == 0) barrier_wait(arrived, parity);
#pragma unroll
    for (int i = 0; i < BATCH; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        uint32_t a[Mine::TILES][4];
        fragments<Mine::TILES>(a, in[i], h);
        multiply<S, W>(sums[(2 * i + h) % CHAINS], a, shared.proj(), DEPTH / 16 * Mine::depth() + 2 * (first + i) + h,
                       look);
      }
  }
#pragma unroll
  for (int chain = 1; chain < CHAINS; ++chain)
#pragma unroll
    for (int i = 0; i < Mine::TILES * S::TILES * 4; ++i) (&sums[0][0][0][0])[i] += (&sums[chain][0][0][0])[i];
  __syncthreads();  // FC's sums may have lain where these go
  const Summands area = shared.proj_sums();
  lay_down(area.of(Mine::depth()) + Mine::row() * S::WIDTH, sums[0]);
  watch.template take<S, 1>(look);
  watch.lay_down(shared.fc);  // whose weights and sums are used up
  __syncthreads();
  watch.report(shared.fc, guard, last);
  if (mine.row < rows) {
    float4 sum = pick_up<Mine::DEPTHS>(area.first + mine.row * S::WIDTH + mine.c, area.stride);
    if (meet<S, MT>(sum, exchange.proj_sums, split, mine.row, column + mine.c))
      *reinterpret_cast<float4*>(output + mine.row * D + column + mine.c) =
          add(add(sum, quad(shared.b_proj + mine.c)), floats(residual));
  }
}

}  // namespace small
