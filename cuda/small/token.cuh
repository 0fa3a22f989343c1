/* One token from the caller's fp32 weights, in fp32 throughout: attention is V, as the softmax over a single key is 1, so
   that three products of one row follow x. One multiply-add for a weight is no more work than rounding it, so every
   precision is served alike, and nothing about the weights need be watched: they may be anything that fp32 can hold.

   The weights come as for more rows (stream.cuh), W_proj beside the others. A warp has 64 of K, a lane (g, t) of it the
   rows and columns that it would have as B of the MMA; the row's own numbers are the same in all eight g. */
#pragma once

#include "common/reduce.cuh"
#include "small/exchange.cuh"
#include "small/phases.cuh"
#include "small/producer.cuh"

namespace small {

/* A warp's part of a slice: the 4 neighbouring k of each of four steps, by a column of each tile. */
template <class S, class W>
struct Columns {
  float4 w[4][S::TILES];

  // Behind the wait for them. Taken before the row is there, as a rule: nothing of it behind this
  __device__ __forceinline__ void take(const float* slice) {
#pragma unroll
    for (int s = 0; s < 4; ++s)
#pragma unroll
      for (int u = 0; u < S::TILES; ++u) {
        float4& v = w[s][u] = W::template numbers<S>(slice, threadIdx.x / 32 * 4 + s, u);
        asm volatile("" : "+f"(v.x), "+f"(v.y), "+f"(v.z), "+f"(v.w));
      }
  }

  // Their product with the row, of all of the warp's k, to shared memory
  __device__ __forceinline__ void multiply(const float4 (&a)[4], float* to) const {
    const int lane = threadIdx.x % 32;
    float sums[S::TILES][2];
#pragma unroll
    for (int u = 0; u < S::TILES; ++u) {
      sums[u][0] = sums[u][1] = 0;
#pragma unroll
      for (int s = 0; s < 4; ++s) {
        float& sum = sums[u][s % 2];
        sum = fmaf(w[s][u].w, a[s].w, fmaf(w[s][u].z, a[s].z, fmaf(w[s][u].y, a[s].y, fmaf(w[s][u].x, a[s].x, sum))));
      }
    }
    __syncwarp();  // the weights have been taken from where this goes
#pragma unroll
    for (int u = 0; u < S::TILES; ++u) {
      const float sum = quad_sum(sums[u][0] + sums[u][1]);
      if (lane % 4 == 0) to[8 * u + lane / 4] = sum;
    }
  }
};

/* Four vectors of a row that other blocks send, at(s). */
template <class At>
__device__ __forceinline__ void receive_row(float4 (&to)[4], At at) {
  uint4 in[4];
  receive(in, nullptr, at);
#pragma unroll
  for (int s = 0; s < 4; ++s) to[s] = floats(in[s]);
}

__device__ __forceinline__ void layernorm_token(const float4 (&x)[1][4], const float4 (&gamma)[4],
                                                const float4 (&beta)[4], Moments& moments, float4 (&a)[4]) {
  layernorm<1>(x, gamma, beta, moments, [&](int s, int, float4 v) { a[s] = v; });
}

/* The twelve warps that compute. */
template <class W>
__device__ __forceinline__ void compute_token(const Call<W>& call, Shared<1, W, true>& shared) {
  using C = Cut<1, true, true>;
  using ValuesS = typename C::Qkv;
  using AttnS = typename C::Attn;
  using FcS = typename C::Fc;
  using ProjS = typename C::Proj;
  const Place place;
  const int warp = threadIdx.x / 32, t = threadIdx.x % 4, own = 64 * warp;
  const bool has_values = place.wide < ValuesS::COUNT;

  pdl_wait();
  float4 x[1][4], gamma[4], beta[4], a[4];
  if (has_values) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const int k = own + 16 * s + 4 * t;
      x[0][s] = load_early(call.x + k);
      gamma[s] = W::vector(call.vectors.norm1 + k), beta[s] = W::vector(call.vectors.norm1 + D + k);
    }
  }
  named_barrier_arrive(ASKED, BLOCK);
  const uint32_t launches = load_strong_word(&call.workspace.epoch[blockIdx.x].launches);
  Exchange& exchange = call.workspace.copy[launches % 2];
  uint32_t parity = 0;  // as in compute()
  const auto next_slice = [&] {
    fence_async_shared();
    __syncthreads();
    parity ^= 1;
  };
  // The slice's sums, of two columns, by the threads that have them; behind it what others have laid down is there.
  const auto finish = [&](auto cut, Summands area, const float* bias_at, int slice, auto done) {
    using S = decltype(cut);
    const int c = threadIdx.x * 2;
    const float2 bias = c < S::WIDTH ? pair(bias_at + c) : make_float2(0, 0);
    computing_sync();
    if (c < S::WIDTH) done(S::column(slice) + c, pick_up<WARPS>(area.first + c, area.stride), bias);
  };

  if (has_values) layernorm_token(x, gamma, beta, shared.moments, a);
  named_barrier_sync(READY, BLOCK);
  for (int slice = place.wide; slice < ValuesS::COUNT; slice += place.grid) {
    if (slice != place.wide) next_slice();
    Columns<ValuesS, W> weights;
    barrier_wait(&shared.qkv_arrived[own / ValuesS::PART_ROWS], parity);
    weights.take(shared.qkv());
    barrier_wait(shared.qkv_arrived, parity);
    weights.multiply(a, shared.qkv_sums().of(warp));
    finish(ValuesS(), shared.qkv_sums(), shared.b_qkv, slice,
           [&](int column, float2 sum, float2 bias) { send(&exchange.token.v[column - 2 * D], add(sum, bias)); });
  }

  parity = 0;
  for (int slice = place.narrow; slice < AttnS::COUNT; slice += place.grid) {
    if (slice != place.narrow) next_slice();
    const int c = threadIdx.x * 2;
    float2 residual = make_float2(0, 0);
    if (c < AttnS::WIDTH) residual = load_early_pair(call.x + AttnS::column(slice) + c);
    Columns<AttnS, W> weights;
    barrier_wait(&shared.attn_arrived[own / AttnS::PART_ROWS], parity);
    weights.take(shared.attn);
    barrier_wait(shared.attn_arrived, parity);
    receive_row(a, [&](int s) { return &exchange.token.v[own + 16 * t + 4 * s]; });
    weights.multiply(a, shared.attn_sums[warp]);
    finish(AttnS(), Summands{shared.attn_sums[0], sizeof shared.attn_sums[0] / 4}, shared.b_attn, slice,
           [&](int column, float2 sum, float2 bias) { send(exchange.x1.at(0, column), add(add(sum, bias), residual)); });
  }

  parity = 0;
  Columns<FcS, W> fc;
  const auto take_fc = [&] {
    barrier_wait(&shared.fc_arrived[own / FcS::PART_ROWS], parity);
    fc.take(shared.fc);
    barrier_wait(shared.fc_arrived, parity);
  };
  take_fc();
  barrier_wait(&shared.norm2_arrived, 0);
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    const int k = own + 16 * s + 4 * t;
    gamma[s] = quad(shared.norm2 + k), beta[s] = quad(shared.norm2 + D + k);
  }
  receive_row(x[0], [&](int s) { return exchange.x1.at(0, own + 16 * s + 4 * t); });
  layernorm_token(x, gamma, beta, shared.moments, a);
  for (int slice = place.wide; slice < FcS::COUNT; slice += place.grid) {
    if (slice != place.wide) next_slice(), take_fc();
    fc.multiply(a, shared.fc_sums().of(warp));
    finish(FcS(), shared.fc_sums(), shared.b_fc, slice, [&](int column, float2 sum, float2 bias) {
      sum = add(sum, bias);
      send(&exchange.token.f[column], make_float2(gelu(sum.x), gelu(sum.y)));
    });
  }

  parity = 0;
  for (int slice = place.narrow; slice < ProjS::COUNT; slice += place.grid) {
    if (slice != place.narrow) next_slice();
    const int c = threadIdx.x * 2, k = ProjS::row(slice) + own + 8 * t;
    float2 residual = make_float2(0, 0);
    if (c < ProjS::WIDTH) residual = receive_one(exchange.x1.at(0, ProjS::column(slice) + c));
    Columns<ProjS, W> weights;
    barrier_wait(&shared.proj_arrived[own / ProjS::PART_ROWS], parity);
    weights.take(shared.proj());
    barrier_wait(shared.proj_arrived, parity);
    receive_row(a, [&](int s) { return &exchange.token.f[k + 32 * (s / 2) + 4 * (s % 2)]; });
    weights.multiply(a, shared.proj_sums().of(warp));
    finish(ProjS(), shared.proj_sums(), shared.b_proj, slice, [&](int column, float2 sum, float2 bias) {
      if (meet<ProjS, 1>(sum, exchange.proj_sums, ProjS::split(slice), 0, column))
        *reinterpret_cast<float2*>(call.output + column) = add(add(sum, bias), residual);
    });
  }
  if (threadIdx.x == 0) call.workspace.epoch[blockIdx.x] = {launches + 1, 1, C::SPLIT, C::SPLIT_PROJ};
}

}  // namespace small
