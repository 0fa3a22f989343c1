/* Up to FP32_ROWS tokens from fp32 weights, in fp32 throughout: one row is multiplied as fast as its weights could be
   rounded, so that it serves every precision. The weights may be anything that fp32 can hold: nothing about them need
   be watched, nothing follows that would compute the call again, and the launch may begin while the one before it
   ends (src/cuda/lone.rs). Limiter: as in block.cuh, and multiply-adds, of which each row costs about 1 us (H200).

   SINGLE: one token, whose attention is V, because the softmax over a single key is 1; Q and K are not computed, and
   W_proj has a place of its own.

   A warp has 64 of K, a lane (g, t) of it the numbers that it would have as B of the MMA (stream.cuh): rows of the
   slice by t, columns by g. Of activations it receives and normalises row g, its numbers being chunks s of four, and
   lays them down for the whole warp as [row][4 s + t]; with one token all lanes have them already. */
#pragma once

#include "common/exp2.cuh"
#include "common/reduce.cuh"
#include "small/exchange.cuh"
#include "small/phases.cuh"
#include "small/producer.cuh"

namespace small {

/* Where q, k, v and f lie on their way, so that what four lanes ask for together is 64 bytes in a run: a lane's chunk s
   of a warp's 64 features is at 16 s + 4 t, whatever features it stands for. */
__device__ __forceinline__ int place_of_qkv(int column) {  // V: features 16 t + 4 s
  return column < 2 * D ? column : (column & ~63) + column / 4 % 4 * 16 + column / 16 % 4 * 4 + column % 4;
}
__device__ __forceinline__ int place_of_f(int column) {  // features 32 (s / 2) + 8 t + 4 (s % 2)
  return (column & ~31) + column / 4 % 2 * 16 + column / 8 % 4 * 4 + column % 4;
}

/* A warp's activations: CHUNKS of four of each row for each t. */
template <bool SINGLE, int CHUNKS = 4>
struct Activations {
  float4* area;  // [row][4 s + t]; not for one token
  float4 own[CHUNKS];

  __device__ __forceinline__ explicit Activations(float4* area) : area(area) {}
  // Chunk s of this lane's row; then, behind __syncwarp(), any row's
  __device__ __forceinline__ void put(int s, float4 v) {
    if constexpr (SINGLE)
      own[s] = v;
    else
      area[(threadIdx.x % 32 / 4 * CHUNKS + s) * 4 + threadIdx.x % 4] = v;
  }
  __device__ __forceinline__ float4 at(int row, int s) const {
    return SINGLE ? own[s] : area[(row * CHUNKS + s) * 4 + threadIdx.x % 4];
  }
};

__device__ __forceinline__ float dot(float4 a, float4 b, float sum) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

/* A warp's part of a slice: four neighbouring k of each step, by a column of each tile. */
template <class S, class W>
struct Columns {
  static constexpr int STEPS = S::ROWS / WARPS / 16;
  float4 w[STEPS][S::TILES];

  // Behind the wait for them, as a rule before the rows are there: none of it behind this
  __device__ __forceinline__ void take(const float* slice) {
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
#pragma unroll
      for (int u = 0; u < S::TILES; ++u) {
        float4& v = w[s][u] = W::template numbers<S>(slice, threadIdx.x / 32 * STEPS + s, u);
        asm volatile("" : "+f"(v.x), "+f"(v.y), "+f"(v.z), "+f"(v.w));
      }
  }

  // Their product with the rows, of all of the warp's k, to shared memory
  template <bool SINGLE>
  __device__ __forceinline__ void multiply(const Activations<SINGLE, STEPS>& a, int rows, float* to) const {
    __syncwarp();  // all have put their chunks, and have taken the weights from where the sums go
    if constexpr (SINGLE) {
      multiply_row(a, 0, to);
    } else {
#pragma unroll 2
      for (int row = 0; row < rows; ++row) multiply_row(a, row, to + row * S::WIDTH);
    }
  }

 private:
  template <bool SINGLE>
  __device__ __forceinline__ void multiply_row(const Activations<SINGLE, STEPS>& a, int row, float* to) const {
    const int lane = threadIdx.x % 32;
    float sums[S::TILES][2] = {};
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      const float4 chunk = a.at(row, s);
#pragma unroll
      for (int u = 0; u < S::TILES; ++u) sums[u][s % 2] = dot(w[s][u], chunk, sums[u][s % 2]);
    }
#pragma unroll
    for (int u = 0; u < S::TILES; ++u) {
      const float sum = quad_sum(sums[u][0] + sums[u][1]);
      if (lane % 4 == 0) to[W::template column<S>(u, lane / 4)] = sum;
    }
  }
};

/* Attention of one head for all rows by its warp: chunks of O as V's. */
__device__ __forceinline__ void attention_in_fp32(const float4 (&q)[4], const float4 (&k)[4], const float4 (&v)[4],
                                                  int rows, Keys seen, Activations<false> keys,
                                                  Activations<false> values, float4 (&o)[4]) {
#pragma unroll
  for (int s = 0; s < 4; ++s) keys.put(s, k[s]), values.put(s, v[s]);
  __syncwarp();
  float p[FP32_ROWS], top = -INFINITY, total = 0;
#pragma unroll
  for (int key = 0; key < FP32_ROWS; ++key) {
    p[key] = -INFINITY;
    if (key >= rows) continue;
    float sum = 0;
#pragma unroll
    for (int s = 0; s < 4; ++s) sum = dot(q[s], keys.at(key, s), sum);
    sum = quad_sum(sum);
    if (seen.sees(key)) p[key] = sum;
    top = fmaxf(top, p[key]);
  }
#pragma unroll
  for (int s = 0; s < 4; ++s) o[s] = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int key = 0; key < FP32_ROWS; ++key) {
    if (key >= rows || !seen.sees(key)) continue;
    const float share = exp2f((p[key] - top) * SCORE_SCALE);
    total += share;
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const float4 one = values.at(key, s);
      o[s] = make_float4(fmaf(share, one.x, o[s].x), fmaf(share, one.y, o[s].y), fmaf(share, one.z, o[s].z),
                         fmaf(share, one.w, o[s].w));
    }
  }
  const float inverse = 1.0f / total;
#pragma unroll
  for (int s = 0; s < 4; ++s)
    o[s] = make_float4(o[s].x * inverse, o[s].y * inverse, o[s].z * inverse, o[s].w * inverse);
}

/* The twelve warps that compute. */
template <class W, bool SINGLE>
__device__ __forceinline__ void compute_in_fp32(const Call<W>& call, Shared<FP32_ROWS, W, SINGLE>& shared) {
  using C = Cut<FP32_ROWS, W, SINGLE>;
  using QkvS = typename C::Qkv;
  using AttnS = typename C::Attn;
  using FcS = typename C::Fc;
  using ProjS = typename C::Proj;
  constexpr Asked PROJ_ASKED = asked<Shared<FP32_ROWS, W, SINGLE>>();
  const Place place;
  const int rows = SINGLE ? 1 : call.rows, warp = threadIdx.x / 32, lane = threadIdx.x % 32, t = lane % 4;
  const int row = SINGLE ? 0 : lane / 4, own = 64 * warp;  // this lane's row, this warp's features
  const bool has_qkv = place.wide < QkvS::COUNT;
  Activations<SINGLE> a(shared.rows_of(warp));

  cluster_arrive();
  pdl_wait();
  float4 x[4], gamma[4], beta[4];
  if (has_qkv) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const int k = own + 16 * s + 4 * t;
      x[s] = row < rows ? load_early(call.x + row * D + k) : make_float4(0, 0, 0, 0);
      gamma[s] = W::vector(call.vectors.norm1 + k), beta[s] = W::vector(call.vectors.norm1 + D + k);
    }
  }
  const uint2 calls = calls_before(call.workspace);
  named_barrier_arrive(ASKED, BLOCK);
  Exchange& exchange = call.workspace.copy[calls.x % 2];
  uint32_t parity = 0;  // as in compute()
  const auto next_slice = [&] {
    fence_async_shared();
    __syncthreads();
    parity ^= 1;
  };
  const auto normalise = [&] {
    layernorm(x, gamma, beta, shared.moments, [&](int s, float4 v) { a.put(s, v); });
  };
  const auto receive_chunks = [&](auto& to, const auto& from, int feature) {
    constexpr int CHUNKS = sizeof to / sizeof to[0];
    uint4 in[CHUNKS];
    receive(in, nullptr, [&](int s) -> const void* {
      return row < rows ? from.at(row, feature + 16 * s + 4 * t) : nullptr;
    });
#pragma unroll
    for (int s = 0; s < CHUNKS; ++s) to[s] = floats(in[s]);
  };
  // A row's sums of two columns and their bias, by the thread that finishes them: done(row, column, sums, bias)
  const auto finish = [&](auto cut, Summands area, const float* bias_at, uint64_t* arrived, int slice, auto done) {
    using S = decltype(cut);
    const Pair<S> mine;
    barrier_wait(arrived, parity);  // as in dense()
    const float2 bias = pair(bias_at + mine.c);
    computing_sync();
    if (mine.row < rows)
      done(mine.row, S::column(slice) + mine.c,
           pick_up<WARPS>(area.first + mine.row * S::WIDTH + mine.c, area.stride), bias);
  };

  if (has_qkv) normalise();
  named_barrier_sync(READY, BLOCK);
  for (int slice = place.wide; slice < QkvS::COUNT; slice += place.grid) {
    if (slice != place.wide) next_slice();
    Columns<QkvS, W> weights;
    barrier_wait(&shared.qkv_arrived[own / QkvS::PART_ROWS], parity);
    weights.take(shared.qkv());
    weights.multiply(a, rows, shared.qkv_sums().of(warp));
    finish(QkvS(), shared.qkv_sums(), shared.b_qkv, shared.qkv_arrived, slice,
           [&](int row, int column, float2 sum, float2 bias) {
             send(exchange.exact_qkv.at(row, place_of_qkv(column)), add(sum, bias));
           });
  }
  if constexpr (PROJ_ASKED == WITH_QKV) fence_async_shared();  // W_proj will lie where W_qkv and its sums lay

  parity = 0;
  const auto ask_for_proj = [&] {
    if constexpr (PROJ_ASKED == WITH_QKV) named_barrier_arrive(PROJ, BLOCK);
  };
  for (int slice = place.narrow(); slice < AttnS::COUNT; slice += place.grid) {
    if (slice >= place.grid) next_slice();
    const Pair<AttnS> mine;
    float2 residual = make_float2(0, 0);
    if (mine.row < rows) residual = load_early_pair(call.x + mine.row * D + AttnS::column(slice) + mine.c);
    Columns<AttnS, W> weights;
    barrier_wait(&shared.attn_arrived[own / AttnS::PART_ROWS], parity);
    weights.take(shared.attn);
    float4 o[4];
    if constexpr (SINGLE) {
      receive_chunks(o, exchange.exact_qkv, 2 * D + own);
    } else {
      uint4 in[12];
      receive(in, nullptr, [&](int i) -> const void* {
        return row < rows ? exchange.exact_qkv.at(row, i / 4 * D + own + 16 * (i % 4) + 4 * t) : nullptr;
      });
      if (slice + place.grid >= AttnS::COUNT) ask_for_proj();
      float4 of[3][4];
#pragma unroll
      for (int i = 0; i < 12; ++i) of[i / 4][i % 4] = floats(in[i]);
      const Activations<false> values(shared.rows_of(warp) + FP32_ROWS * 16);
      attention_in_fp32(of[0], of[1], of[2], rows, Keys(row, rows, call.seq_len, call.causal), a, values, o);
      __syncwarp();  // K has been read
    }
#pragma unroll
    for (int s = 0; s < 4; ++s) a.put(s, o[s]);
    weights.multiply(a, rows, shared.attn_summands().of(warp));
    finish(AttnS(), shared.attn_summands(), shared.b_attn, shared.attn_arrived, slice,
           [&](int row, int column, float2 sum, float2 bias) {
             send(exchange.x1.at(row, column), add(add(sum, bias), residual));
           });
  }
  if (place.narrow() >= AttnS::COUNT) ask_for_proj();

  parity = 0;
  Columns<FcS, W> fc;
  const auto take_fc = [&] {
    barrier_wait(&shared.fc_arrived[own / FcS::PART_ROWS], parity);
    fc.take(shared.fc);
  };
  take_fc();
  barrier_wait(&shared.norm2_arrived, 0);
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    const int k = own + 16 * s + 4 * t;
    gamma[s] = quad(shared.norm2 + k), beta[s] = quad(shared.norm2 + D + k);
  }
  receive_chunks(x, exchange.x1, own);
  normalise();
  for (int slice = place.wide; slice < FcS::COUNT; slice += place.grid) {
    if (slice != place.wide) next_slice(), take_fc();
    fc.multiply(a, rows, shared.fc_sums().of(warp));
    finish(FcS(), shared.fc_sums(), shared.b_fc, shared.fc_arrived, slice,
           [&](int row, int column, float2 sum, float2 bias) {
             sum = add(sum, bias);
             send(exchange.exact_f.at(row, place_of_f(column)), make_float2(gelu(sum.x), gelu(sum.y)));
           });
  }

  parity = 0;
  cluster_wait();
  for (int slice = place.narrow(); slice < ProjS::COUNT; slice += place.grid) {
    if (slice >= place.grid) {
      next_slice();
      cluster_arrive(), cluster_wait();  // the peer has read what it got
    }
    constexpr int DEPTH = ProjS::ROWS / WARPS, STEPS = DEPTH / 16;
    const int split = ProjS::split(slice);
    Columns<ProjS, W> weights;
    barrier_wait(&shared.proj_arrived[DEPTH * warp / ProjS::PART_ROWS], parity);
    weights.take(shared.proj());
    Activations<false, STEPS> hidden(shared.hidden_of(warp));
    if constexpr (SINGLE) {  // a chunk a lane
      uint4 in[1];
      receive(in, nullptr, [&](int) { return exchange.exact_f.at(0, ProjS::row(slice) + DEPTH * warp + 4 * lane); });
      hidden.area[lane] = floats(in[0]);
    } else {
      float4 f[STEPS];
      receive_chunks(f, exchange.exact_f, ProjS::row(slice) + DEPTH * warp);
#pragma unroll
      for (int s = 0; s < STEPS; ++s) hidden.put(s, f[s]);
    }
    const Pair<ProjS> mine;
    uint2 residual = make_uint2(0, 0);
    if (mine.row < rows) residual = load_strong_pair(exchange.x1.at(mine.row, ProjS::column(slice) + mine.c));
    weights.multiply(hidden, rows, shared.proj_sums().of(warp));
    finish(ProjS(), shared.proj_sums(), shared.b_proj, shared.proj_arrived, slice,
           [&](int row, int column, float2 sum, float2 bias) {
             if (shared.peer[0].meet(sum, parity, split, row, mine.c, rows))
               *reinterpret_cast<float2*>(call.output + row * D + column) =
                   add(add(sum, bias), received(residual, exchange.x1.at(row, column)));
           });
  }
}

}  // namespace small
