/* The phases of the block, each on one slice of its weight matrix: LN + QKV and LN + FC (dense), attention + output
   projection (attend), proj (project). A slice's product is summed over the warps through shared memory, in the order
   of the warps, and over blocks in the order of the splits: the same bits every time. */
#pragma once

#include "common/exp2.cuh"
#include "small/attention.cuh"
#include "small/exchange.cuh"
#include "small/layernorm.cuh"
#include "small/shared.cuh"
#include "small/vectors.cuh"
#include "small/watch.cuh"

namespace small {

__device__ __forceinline__ void computing_sync() { named_barrier_sync(COMPUTING, THREADS); }

template <int MT, int TILES>
__device__ __forceinline__ void zero(float (&sums)[MT][TILES][4]) {
#pragma unroll
  for (int m = 0; m < MT; ++m)
#pragma unroll
    for (int u = 0; u < TILES; ++u)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][u][i] = 0;
}

/* What of a slice's result this thread finishes: two columns of a row, if that row is there, `place` in the product,
   where row r is in place r ^ turn. */
template <class S>
struct Pair {
  int place = threadIdx.x / (S::WIDTH / 2), row, c = threadIdx.x % (S::WIDTH / 2) * 2;
  explicit __device__ __forceinline__ Pair(int turn = 0) : row(place ^ turn) {}
};

/* A warp's part of a slice, as the B of STEPS steps of the MMA. Where registers allow it is taken before the
   activations come: to read a slice of fp32 weights takes the SM 576 clocks (72 KB at 128 bytes a clock). */
template <class S, class W, int STEPS>
struct Fragments {
  uint2 b[STEPS][S::TILES];

  __device__ __forceinline__ void take(const typename W::Element* slice, int first) {
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
      for (int u = 0; u < S::TILES; ++u) b[s][u] = W::template fragment<S>(slice, first + s, u);
  }
  // Nothing of take() behind this. For the compiler only: loads may still be on their way. What then lets W_proj come
  // into their place has polled L2 in between (receive()), which takes longer.
  __device__ __forceinline__ void pin() {
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
      for (int u = 0; u < S::TILES; ++u) asm volatile("" : "+r"(b[s][u].x), "+r"(b[s][u].y));
  }
  template <class See>
  __device__ __forceinline__ void each(See see) const {
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
      for (int u = 0; u < S::TILES; ++u) see(b[s][u]);
  }
};

/* One step of the MMA for all row tiles and the whole width of the slice. */
template <int MT, int TILES>
__device__ __forceinline__ void multiply(float (&sums)[MT][TILES][4], const uint32_t (&a)[MT][4],
                                         const uint2 (&b)[TILES]) {
#pragma unroll
  for (int u = 0; u < TILES; ++u)
#pragma unroll
    for (int m = 0; m < MT; ++m) mma(sums[m][u], a[m], b[u]);
}

/* Where the other eight rows are what fp16 leaves of these (layernorm.cuh), their sums belong together. */
template <int TILES>
__device__ __forceinline__ void add_rests(float (&sums)[1][TILES][4]) {
#pragma unroll
  for (int u = 0; u < TILES; ++u) sums[0][u][0] += sums[0][u][2], sums[0][u][1] += sums[0][u][3];
}

/* Sums of 16 MT rows (8 where HALVES is 1) to shared memory, row-major. IN_PAIRS: of each pair of neighbouring columns
   each of two tiles has one (stream.cuh). */
template <int HALVES, bool IN_PAIRS = false, int MT, int TILES>
__device__ __forceinline__ void lay_down(float* to, const float (&sums)[MT][TILES][4]) {
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  if constexpr (IN_PAIRS) {
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int r = 0; r < HALVES; ++r)
        *reinterpret_cast<float4*>(to + (16 * m + 8 * r + g) * 16 + t % 2 * 8 + t / 2 * 4) = make_float4(
            sums[m][0][2 * r], sums[m][1][2 * r], sums[m][0][2 * r + 1], sums[m][1][2 * r + 1]);
  } else {
#pragma unroll
    for (int m = 0; m < MT; ++m)
#pragma unroll
      for (int u = 0; u < TILES; ++u)
#pragma unroll
        for (int r = 0; r < HALVES; ++r)
          *reinterpret_cast<float2*>(to + (16 * m + 8 * r + g) * 8 * TILES + 8 * u + 2 * t) =
              make_float2(sums[m][u][2 * r], sums[m][u][2 * r + 1]);
  }
}

/* Two columns of a row, summed over N places that lie `stride` floats apart. */
template <int N>
__device__ __forceinline__ float2 pick_up(const float* first, int stride) {
  float2 sum = pair(first);
#pragma unroll
  for (int w = 1; w < N; ++w) sum = add(sum, pair(first + w * stride));
  return sum;
}

/* tanh GELU: z / (1 + exp(-2 u)), u = sqrt(2 / pi) (z + 0.044715 z^3) */
__device__ __forceinline__ float gelu(float z) {
  const float u = z * (1.0f + 0.044715f * z * z);
  return __fdividef(z, 1.0f + exp2f(u * (-2.0f * 0.7978845608f * LOG2_E)));
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

/* Calls f(first row, rows from there on) for all rows, 16 MT of them at a time where there may be more. */
template <class C, int MT, class F>
__device__ __forceinline__ void each_pass(int rows, F f) {
  if constexpr (C::PASSES == 1)
    f(0, rows);
  else
#pragma unroll 1
    for (int first = 0; first < rows; first += 16 * MT) f(first, min(rows - first, 16 * MT));
}

/* This warp's features of LN's output, as normalise_row sends it, of `rows` rows from `first` on. */
template <int MT>
__device__ __forceinline__ void receive_fragments(const Blocked<__half, D>& h, int first, int rows,
                                                  uint32_t (&a)[D / WARPS / 16][MT][4]) {
  constexpr int FEATURES = D / WARPS, VECTORS = 2 * MT;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int k = FEATURES * (threadIdx.x / 32);
  uint4 in[FEATURES / 32][VECTORS];
  const auto place = [&](int i) -> const void* {
    const int row = i % VECTORS * 8 + g;
    return row < rows ? h.at(first + row, k + i / VECTORS * 32 + 8 * t) : nullptr;
  };
  receive(reinterpret_cast<uint4(&)[FEATURES / 32 * VECTORS]>(in), h.at(first + rows - 1, k), place);
#pragma unroll
  for (int s = 0; s < FEATURES / 16; ++s) fragments<MT>(a[s], in[s / 2], s % 2);
}

/* a W + bias, `a` being this warp's share, of row r in place r ^ turn: QKV and FC. `finish` gets row, column and the
   sum of two columns, scaled by what follows the bias where the matrix is Merged.

   Here and below: what a copy brings is read behind the wait for it and in front of the next named barrier, behind
   which racecheck no longer knows of that wait. The bias comes with the first part. */
template <int HALVES, class S, class W, int MT, int STEPS, class Finish>
__device__ __forceinline__ void dense(const uint32_t (&a)[STEPS][MT][4], const Fragments<S, W, STEPS>& weights,
                                      Summands area, const float* bias_at, uint64_t* arrived, uint32_t parity,
                                      int slice, int turn, int rows, Finish finish) {
  const Pair<S> mine(turn);
  float sums[MT][S::TILES][4];
  zero(sums);
#pragma unroll
  for (int s = 0; s < STEPS; ++s) multiply(sums, a[s], weights.b[s]);
  barrier_wait(arrived, parity);
  constexpr bool SCALED = std::is_same_v<typename S::Matrix, Merged>;
  const float2 bias = pair(bias_at + mine.c), scale = SCALED ? pair(bias_at + S::WIDTH + mine.c) : make_float2(1, 1);
  __syncwarp();
  if constexpr (HALVES == 1) add_rests(sums);
  lay_down<HALVES>(area.of(threadIdx.x / 32), sums);
  computing_sync();
  if (mine.row < rows) {
    const float2 sum = pick_up<WARPS>(area.first + mine.place * S::WIDTH + mine.c, area.stride);
    finish(mine.row, S::column(slice) + mine.c,
           make_float2(fmaf(sum.x, scale.x, bias.x), fmaf(sum.y, scale.y, bias.y)));
  }
}

/* Attention of this slice's heads, times its part of the output projection, + bias + x: x1. Where that is a sum over
   splits, only this slice's summand; of the two that a cluster has (PAIRED), half of the rows. `received` is called
   when q, k and v are there. */
template <class S, class W, int MT, int HALVES, class Shared, class Received>
__device__ __forceinline__ void attend(Shared& shared, uint64_t* arrived, uint32_t parity, Exchange& exchange,
                                       const float* x, int slice, int rows, int seq_len, bool causal, WatchOf<W>& watch,
                                       Received received) {
  using C = typename Shared::C;
  constexpr int HEADS_HERE = S::ROWS / HEAD_DIM;
  const int warp = threadIdx.x / 32, head = warp / MT,
            tile = warp % MT;  // of the slice's heads, if one; of the queries
  const bool has_head = HEADS_HERE * MT == WARPS || head < HEADS_HERE;
  const int split = S::split(slice), column = S::column(slice);
  const Pair<S> mine;
  Fragments<S, W, 4> weights;
  const auto multiply_head = [&](const Operands<MT>& in, const Keys(&keys)[2]) {
    uint32_t a[4][1][4];
    attention<MT, HALVES>(in, keys, reinterpret_cast<uint32_t(&)[4][4]>(a));
    float sums[1][S::TILES][4];
    zero(sums);
    if constexpr (MT > 1)
      barrier_wait(arrived + HEAD_DIM * head / S::PART_ROWS, parity), weights.take(shared.attn, 4 * head);
#pragma unroll
    for (int s = 0; s < 4; ++s) multiply(sums, a[s], weights.b[s]);
    lay_down<HALVES, W::template IN_PAIRS<S>>(shared.attn_sums[warp], sums);
  };
  const int query = 16 * tile + threadIdx.x % 32 / 4;
  float2 residual = make_float2(0, 0), bias;
  if constexpr (MT == 1) {
    if (mine.row < rows) residual = load_early_pair(x + mine.row * D + column + mine.c);
    if (has_head) {
      barrier_wait(arrived + HEAD_DIM * head / S::PART_ROWS, parity);
      weights.take(shared.attn, 4 * head), weights.pin();
    }
    barrier_wait(arrived, parity);
    bias = pair(shared.b_attn + mine.c);
    if (has_head) {
      const Keys keys[2] = {Keys(query, rows, seq_len, causal), Keys(query + 8, rows, seq_len, causal)};
      Operands<MT> in;
      load_operands<HALVES>(in, exchange, split * HEADS_HERE + head, rows);
      received();
      multiply_head(in, keys);
    } else {
      received();
    }
  } else {
    const Keys keys[2] = {Keys(query, rows, seq_len, causal), Keys(query + 8, rows, seq_len, causal)};
    Operands<MT> in;
    load_operands<MT, HEADS_HERE, Shared::K_PITCH, Shared::V_PITCH>(in, exchange, split * HEADS_HERE, head, 16 * tile,
                                                                    rows, shared.staged_k(), shared.staged_v());
    received();
    if (has_head) multiply_head(in, keys);
  }
  computing_sync();
  if (mine.row < rows) {
    constexpr int STRIDE = sizeof shared.attn_sums[0] / 4;
    float2 sum = pick_up<HEADS_HERE>(shared.attn_sums[mine.row / 16] + mine.row % 16 * S::WIDTH + mine.c, MT * STRIDE);
    if constexpr (C::SPLIT)
      send(&exchange.attn_sums[split][mine.row][column + mine.c], sum);
    else if (!C::PAIRED || shared.attn_peer.meet(sum, parity, split, mine.row, mine.c, rows))
      send(exchange.x1.at(mine.row, column + mine.c), add(add(sum, bias), residual));
  }
  if (has_head) watch.look(weights);
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

/* The row of x1 as it was sent; this lane's part. */
__device__ __forceinline__ Row receive_row(const Blocked<float, D>& x1, int row) {
  Row all;
  uint4 in[6];
  receive(in, nullptr, [&](int i) { return x1.at(row, Row::feature(i)); });
#pragma unroll
  for (int i = 0; i < 6; ++i) all.v[i] = floats(in[i]);
  return all;
}

/* This slice's part of f W + bias + x1: the output. `last`: this block has no other slice. */
template <class S, class W, int MT, int HALVES, class Shared>
__device__ __forceinline__ void project(Shared& shared, uint64_t* arrived, uint32_t parity, Exchange& exchange,
                                        int slice, int all_rows, float* output, WatchOf<W>& watch, bool last) {
  constexpr int DEPTH = S::ROWS / WARPS, BLOCKS = DEPTH / 32, BATCH = MT > 1 ? 2 : BLOCKS, VECTORS = 2 * MT;
  static_assert(BLOCKS % BATCH == 0);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int column = S::column(slice), k = S::row(slice) + warp * DEPTH;
  const Pair<S> mine;
  Fragments<S, W, DEPTH / 16> weights;
  float2 bias;
  each_pass<typename Shared::C, MT>(all_rows, [&](int top, int rows) {
    uint2 residual = make_uint2(0, 0);
    if (mine.row < rows) residual = load_strong_pair(exchange.x1.at(top + mine.row, column + mine.c));
    const __half* sample = MT * HALVES > 1 ? exchange.f.at(top + rows - 1, k + lane * 8 % DEPTH) : nullptr;
    constexpr int CHAINS = MT == 1 ? 4 : 1;  // of sums that do not wait for one another
    float sums[CHAINS][MT][S::TILES][4];
#pragma unroll
    for (int chain = 0; chain < CHAINS; ++chain) zero(sums[chain]);
    if (top == 0) {
      barrier_wait(arrived + DEPTH * warp / S::PART_ROWS, parity);
      weights.take(shared.proj(), DEPTH / 16 * warp);
      weights.pin();
      barrier_wait(arrived, parity);
      bias = pair(shared.b_proj + mine.c);
      watch.look(weights);
      if (last) watch.lay_down(shared, MATRIX_PROJ);
    }
#pragma unroll
    for (int first = 0; first < BLOCKS; first += BATCH) {
      uint4 in[BATCH][VECTORS];
      receive(reinterpret_cast<uint4(&)[BATCH * VECTORS]>(in), first ? nullptr : sample, [&](int i) -> const void* {
        const int r = 8 * (i % VECTORS) + g;
        return r < rows ? exchange.f.at(top + r, k + 32 * (first + i / VECTORS) + 8 * t) : nullptr;
      });
#pragma unroll
      for (int i = 0; i < BATCH; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          uint32_t a[MT][4];
          fragments<MT>(a, in[i], h);
          multiply(sums[(2 * i + h) % CHAINS], a, weights.b[2 * (first + i) + h]);
        }
    }
#pragma unroll
    for (int chain = 1; chain < CHAINS; ++chain)
#pragma unroll
      for (int i = 0; i < MT * S::TILES * 4; ++i) (&sums[0][0][0][0])[i] += (&sums[chain][0][0][0])[i];
    if constexpr (!Shared::TIGHT) computing_sync();  // FC's sums, or those before, may have lain where these go
    const Summands area = shared.proj_sums();
    __syncwarp();
    lay_down<HALVES, W::template IN_PAIRS<S>>(area.of(warp), sums[0]);
    computing_sync();
    if (mine.row < rows) {
      float2 sum = pick_up<WARPS>(area.first + mine.row * S::WIDTH + mine.c, area.stride);
      if (shared.peer[top / (16 * MT)].meet(sum, parity, S::split(slice), mine.row, mine.c, rows))
        *reinterpret_cast<float2*>(output + (top + mine.row) * D + column + mine.c) =
            add(add(sum, bias), received(residual, exchange.x1.at(top + mine.row, column + mine.c)));
    }
  });
}

}  // namespace small
