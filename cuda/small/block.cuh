/* The whole block for 1 to 64 rows in one launch: out = x1 + gelu(LN2(x1) W_fc + b_fc) W_proj + b_proj,
   x1 = x + attention(LN1(x) W_qkv + b_qkv) W_attn + b_attn.

   Shapes: x, output (rows, 768) fp32, rows = batch seq_len <= 16 MT; they may be the same buffer. Grid: min(SMs, 128), all resident at once (cooperative launch);
   384 threads. Shared memory: sizeof(Shared<MT, W>), 218 KB: the weights of a CTA are all on their way before the first is used, but for proj's, which take the place of qkv's.
   Limiter: three exchanges of activations through L2, one after the other, and the bytes of the weights meanwhile.
   x is read before anything that output depends on is sent, and output is written after everything was received: they may be the same. */
#pragma once

#include "small/phases.cuh"

namespace small {

/* The rows a lane holds: 8 j + g, features 64 warp + 16 s + 4 t; zeros below the last row. */
template <int MT, bool WAIT>
__device__ __forceinline__ void load_rows(const float* from, int rows, float4 (&v)[2 * MT][4]) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const float* warps = from + threadIdx.x / 32 * 64;
  const float* p = warps + g * D + 4 * t;
  const auto at = [&](int i) -> const float* { return 8 * (i / 4) + g < rows ? p + 8 * (i / 4) * D + 16 * (i % 4) : nullptr; };
  if constexpr (WAIT) {
    uint4 bits[8 * MT];
    receive(bits, rows > FEW_ROWS ? warps + (rows - 1) * D + lane % 8 * 8 : nullptr, at);
#pragma unroll
    for (int i = 0; i < 8 * MT; ++i)
      v[i / 4][i % 4] = make_float4(__uint_as_float(bits[i].x), __uint_as_float(bits[i].y), __uint_as_float(bits[i].z), __uint_as_float(bits[i].w));
  } else {
#pragma unroll
    for (int i = 0; i < 8 * MT; ++i) v[i / 4][i % 4] = at(i) ? load_early(at(i)) : make_float4(0, 0, 0, 0);
  }
}

template <int MT, class W>
__device__ __forceinline__ void block(const float* x, float* output, const typename W::Matrices& matrices, const Vectors& vectors, Workspace& workspace,
                                      int rows, int seq_len, bool causal) {
  using C = Cut<MT>;
  using QkvS = typename C::Qkv;
  using AttnS = typename C::Attn;
  using FcS = typename C::Fc;
  using ProjS = typename C::Proj;
  extern __shared__ __align__(128) unsigned char raw[];
  auto& shared = *reinterpret_cast<Shared<MT, W>*>(raw);
  const int grid = gridDim.x;
  // The narrow matrices' slices start three quarters round the grid: where they or qkv's are fewer than the CTAs, different ones go without.
  const int wide = blockIdx.x, narrow = (blockIdx.x + 3 * (grid / 4)) % grid;
  uint64_t *qkv_arrived = &shared.arrived[0], *attn_arrived = &shared.arrived[1], *fc_arrived = &shared.arrived[2], *proj_arrived = &shared.arrived[3];

  if (threadIdx.x == 0) {
    for (int i = 0; i < 5; ++i) barrier_init(&shared.arrived[i], W::ARRIVALS);
    barrier_init_fence();
  }
  if (W::ARRIVALS > 1) __syncthreads();
  if (wide < QkvS::COUNT) W::template bring<QkvS>(shared.qkv(), matrices, wide, qkv_arrived, 0);
  float4 v[2 * MT][4];
  if (wide < QkvS::COUNT) load_rows<MT, false>(x, rows, v);
  __syncthreads();  // the barriers are initialised; a warp each issues the rest
  W::bring_vectors(shared.norm1, shared.norm2, vectors, &shared.arrived[4], 32);
  if (narrow < AttnS::COUNT) W::template bring<AttnS>(shared.attn, matrices, narrow, attn_arrived, 64);
  W::template bring<FcS>(shared.fc, matrices, wide, fc_arrived, 96);
  if (!shared.TIGHT && narrow < ProjS::COUNT) W::template bring<ProjS>(shared.proj(), matrices, narrow, proj_arrived, 128);

  const Epoch last = workspace.epoch[blockIdx.x];
  Exchange& exchange = workspace.copy[last.launches % 2];
  uint32_t a[4][MT][4];
  uint32_t parity = 0;  // of the arrivals: the first slice's, then the next one's if the grid is smaller than the slices are many
  const auto next_slice = [&] {
    async_fence();
    __syncthreads();
    parity ^= 1;
  };

  if (wide < QkvS::COUNT) {
    barrier_wait(&shared.arrived[4], 0);
    layernorm<MT>(v, shared.norm1, shared.moments, a);
    for (int slice = wide; slice < QkvS::COUNT; slice += grid) {
      if (slice != wide) {
        next_slice();
        W::template bring<QkvS>(shared.qkv(), matrices, slice, qkv_arrived, 0);
      }
      dense<QkvS, W, MT>(a, shared.qkv(), shared.qkv_sums(), qkv_arrived, parity, vectors.b_qkv, slice, rows,
                         [&](int row, int column, float4 sum) { send(&exchange.qkv[row][column], sum); });
    }
    async_fence();
  }
  __syncthreads();
  if (shared.TIGHT && narrow < ProjS::COUNT) W::template bring<ProjS>(shared.proj(), matrices, narrow, proj_arrived, 0);
  clear(workspace.copy[~last.launches % 2], min(last.rows, MAX_ROWS));

  parity = 0;
  for (int slice = narrow; slice < AttnS::COUNT; slice += grid) {
    if (slice != narrow) {
      next_slice();
      W::template bring<AttnS>(shared.attn, matrices, slice, attn_arrived, 0);
    }
    attend<AttnS, W, MT>(shared, parity, exchange, x, vectors.b_attn, slice, rows, seq_len, causal);
  }

  parity = 0;
  load_rows<MT, true>(&exchange.x1[0][0], rows, v);
  barrier_wait(&shared.arrived[4], 0);
  layernorm<MT>(v, shared.norm2, shared.moments, a);
  for (int slice = wide; slice < FcS::COUNT; slice += grid) {
    if (slice != wide) {
      next_slice();
      W::template bring<FcS>(shared.fc, matrices, slice, fc_arrived, 0);
    }
    dense<FcS, W, MT>(a, shared.fc, shared.fc_sums(), fc_arrived, parity, vectors.b_fc, slice, rows, [&](int row, int column, float4 sum) {
      send(&exchange.f[row][column], make_float4(gelu(sum.x), gelu(sum.y), gelu(sum.z), gelu(sum.w)));
    });
  }

  parity = 0;
  for (int slice = narrow; slice < ProjS::COUNT; slice += grid) {
    if (slice != narrow) {
      next_slice();
      W::template bring<ProjS>(shared.proj(), matrices, slice, proj_arrived, 0);
    }
    project<ProjS, W, MT>(shared, parity, exchange, vectors.b_proj, slice, rows, output);
  }
  if (threadIdx.x == 0) workspace.epoch[blockIdx.x] = {last.launches + 1, static_cast<uint32_t>(rows)};
}

}  // namespace small
