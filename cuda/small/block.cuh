/* The whole block for 1 to 32 rows in one launch: out = x1 + gelu(LN2(x1) W_fc + b_fc) W_proj + b_proj,
   x1 = x + attention(LN1(x) W_qkv + b_qkv) W_attn + b_attn.

   Shapes: x, output (rows, 768) fp32, rows = batch seq_len <= 16 MT, 8 where HALVES is 1; they may be the same buffer.
   Grid: min(SMs, 128), all resident at once, hence a cooperative launch; 384 threads.
   Shared memory: sizeof(Shared<MT, W>), 167 to 218 KB. A CTA's weights are on their way long before they are used.
   Limiter: the exchanges of activations through L2, one after the other (three up to 16 rows, six above), and above 16
   rows the bytes from L2 to the SMs, activations and weights together.

   x is read before anything that output depends on is sent, and output is written after everything was received: they
   may be the same. `x_copy` gets x once more, `wake` tells what to do about unusual fp32 weights; both may be null. A grid
   smaller than the slices are many takes them in turns. */
#pragma once

#include "small/bystander.cuh"
#include "small/phases.cuh"

namespace small {

__device__ __forceinline__ int norm_feature(int s) { return threadIdx.x / 32 * 64 + 16 * s + threadIdx.x % 4 * 4; }

/* The rows a lane holds for layernorm(): 8 j + g, features 64 warp + 16 s + 4 t; zeros below the last row. */
template <int HALVES>
__device__ __forceinline__ void load_rows(const float* x, int rows, float4 (&v)[2][4]) {
  const int g = threadIdx.x % 32 / 4;
#pragma unroll
  for (int i = 0; i < 4 * HALVES; ++i) {
    const int row = 8 * (i / 4) + g;
    v[i / 4][i % 4] = row < rows ? load_early(x + row * D + norm_feature(i % 4)) : make_float4(0, 0, 0, 0);
  }
}
template <int HALVES>
__device__ __forceinline__ void receive_rows(const Blocked<float, D>& x1, int rows, float4 (&v)[2][4]) {
  const int lane = threadIdx.x % 32, g = lane / 4;
  uint4 bits[4 * HALVES];
  receive(bits, rows > FEW_ROWS ? x1.at(rows - 1, threadIdx.x / 32 * 64 + lane % 8 * 8) : nullptr,
          [&](int i) -> const void* {
            const int row = 8 * (i / 4) + g;
            return row < rows ? x1.at(row, norm_feature(i % 4)) : nullptr;
          });
#pragma unroll
  for (int i = 0; i < 4 * HALVES; ++i) v[i / 4][i % 4] = floats(bits[i]);
}

template <class W>
__device__ __forceinline__ void load_norm(const float* norm, float4 (&gamma)[4], float4 (&beta)[4]) {
#pragma unroll
  for (int s = 0; s < 4; ++s)
    gamma[s] = W::vector(norm + norm_feature(s)), beta[s] = W::vector(norm + D + norm_feature(s));
}

template <class W>
__device__ __forceinline__ void load_norm_row(Row& x, Row& gamma, Row& beta, const float* from, const float* norm) {
#pragma unroll
  for (int i = 0; i < 6; ++i)
    x.v[i] = load_early(from + x.feature(i)), gamma.v[i] = W::vector(norm + x.feature(i)),
    beta.v[i] = W::vector(norm + D + x.feature(i));
}

template <int MT, int HALVES, class W>
__device__ __forceinline__ void block(const float* x, float* output, const typename W::Matrices& matrices,
                                      const Vectors& vectors, Workspace& workspace, int rows, int seq_len,
                                      bool causal, float* x_copy, const Wake* wake) {
  using C = Cut<MT, W::SPLIT_PROJ>;
  using QkvS = typename C::Qkv;
  using AttnS = typename C::Attn;
  using FcS = typename C::Fc;
  using ProjS = typename C::Proj;
  extern __shared__ __align__(128) unsigned char raw[];
  auto& shared = *reinterpret_cast<Shared<MT, W>*>(raw);
  const int grid = gridDim.x, warp = threadIdx.x / 32;
  // The narrow matrices' slices start three quarters round the grid: where they or qkv's are fewer than the CTAs,
  // different ones go without.
  const int wide = blockIdx.x, narrow = (blockIdx.x + 3 * (grid / 4)) % grid;
  uint64_t *qkv_arrived = &shared.arrived[0], *norm2_arrived = &shared.arrived[1], *attn_arrived = &shared.arrived[2],
           *fc_arrived = &shared.arrived[3], *proj_arrived = &shared.arrived[4];
  const auto bring_qkv = [&](int slice, int first_warp) {
    W::template bring<QkvS>(shared.qkv(), shared.b_qkv, matrices, vectors.b_qkv, slice, qkv_arrived, first_warp);
  };
  const auto bring_attn = [&](int slice, int first_warp) {
    W::template bring<AttnS>(shared.attn, shared.b_attn, matrices, vectors.b_attn, slice, attn_arrived, first_warp);
  };
  const auto bring_fc = [&](int slice, int first_warp) {
    W::template bring<FcS>(shared.fc, shared.b_fc, matrices, vectors.b_fc, slice, fc_arrived, first_warp);
  };
  const auto bring_proj = [&](int slice, int first_warp) {
    W::template bring<ProjS>(shared.proj(), shared.b_proj, matrices, vectors.b_proj, slice, proj_arrived, first_warp);
  };
  const bool has_qkv = wide < QkvS::COUNT, has_attn = narrow < AttnS::COUNT, has_proj = narrow < ProjS::COUNT;

  // What LN1 needs is asked for before anything else.
  float4 v[2][4], gamma[4], beta[4];
  Row row_x, row_gamma, row_beta;
  const bool is_norm_warp = C::SPLIT && warp == WARPS - 1;  // does a row for everybody
  if constexpr (C::SPLIT) {
    if (is_norm_warp && blockIdx.x < rows)
      load_norm_row<W>(row_x, row_gamma, row_beta, x + blockIdx.x * D, vectors.norm1);
  } else if (has_qkv) {
    load_rows<HALVES>(x, rows, v);
    load_norm<W>(vectors.norm1, gamma, beta);
  }
  Guard guard(wake, &shared.loud);
  const Epoch last = workspace.epoch[blockIdx.x];
  if (threadIdx.x == 0) {
    for (int i = 0; i < 5; ++i) barrier_init(&shared.arrived[i], W::ARRIVALS);
    barrier_init_fence();
    shared.loud = 0;
  }
  __syncthreads();
  if (has_qkv) bring_qkv(wide, 0);
  const auto bring_others = [&] {
    W::bring_norm(shared.norm2, vectors.norm2, norm2_arrived, 32 * 10);
    if (has_attn) bring_attn(narrow, 4);
    bring_fc(wide, 7 - (shared.TIGHT ? 0 : 2));
    if (!shared.TIGHT && has_proj) bring_proj(narrow, 8);
  };

  Exchange& exchange = workspace.copy[last.launches % 2];
  guard.launches = last.launches;
  using Mine = Share<MT, W>;
  WatchOf<W> watch;
  uint32_t a[D / Mine::DEPTHS / 16][Mine::TILES][4];
  uint32_t parity =
      0;  // of the arrivals: the first slice's, then the next one's if the grid is smaller than the slices are many
  const auto next_slice = [&] {
    async_fence();
    __syncthreads();
    parity ^= 1;
  };

  if (is_norm_warp)
    for (int row = blockIdx.x; row < rows; row += grid) {
      if (row != blockIdx.x) load_norm_row<W>(row_x, row_gamma, row_beta, x + row * D, vectors.norm1);
      normalize_row(row_x, row_gamma, row_beta, exchange.h[0], row);
    }
  if (has_qkv) {
    if constexpr (C::SPLIT) {
      receive_fragments<Mine>(exchange.h[0], rows, a);
    } else {
      layernorm<HALVES>(v, gamma, beta, shared.moments, a);
    }
    bring_others();  // not before: they would delay LN1's input and W_qkv
    for (int slice = wide; slice < QkvS::COUNT; slice += grid) {
      if (slice != wide) {
        next_slice();
        bring_qkv(slice, 0);
      }
      dense<QkvS, W, Mine>(a, shared.qkv(), shared.qkv_sums(), qkv_arrived, parity, shared.b_qkv, slice, rows, watch,
                           [&](int row, int column, float4 sum) {
                             send(column < 2 * D ? exchange.qk.at(row, column) : exchange.v.at(row, column - 2 * D),
                                  sum);
                           });
    }
    async_fence();
  }
  const Bystander bystander(QkvS::COUNT);
  if (x_copy) bystander.save(x, x_copy, rows);
  if (wake) bystander.watch(vectors, guard);
  if (!has_qkv) bring_others();  // not before: they would delay W_qkv
  __syncthreads();
  clear(workspace.copy[~last.launches % 2], min(last.rows, MAX_ROWS), last.split, last.split_proj);
  guard.clear_other();

  const auto lay_base = [&](int row) {  // of the row this warp will put together; a lane reads what it wrote
#pragma unroll
    for (int i = 0; i < 6; ++i)
      *reinterpret_cast<float4*>(shared.base + Row::feature(i)) =
          add(load_early(x + row * D + Row::feature(i)), W::vector(vectors.b_attn + Row::feature(i)));
  };
  if (is_norm_warp && blockIdx.x < rows) lay_base(blockIdx.x);
  parity = 0;
  for (int slice = narrow; slice < AttnS::COUNT; slice += grid) {
    if (slice != narrow) {
      next_slice();
      bring_attn(slice, 0);
    }
    attend<AttnS, W, MT, HALVES>(shared, attn_arrived, parity, exchange, x, slice, rows, seq_len, causal, watch);
  }
  if constexpr (shared.TIGHT) {  // now that qkv's place is free of weights, sums, K and V
    async_fence();
    __syncthreads();
    if (C::SPLIT && has_proj) bring_proj(narrow, 0);
  }

  parity = 0;
  barrier_wait(norm2_arrived, 0);
  if constexpr (C::SPLIT) {
    if (is_norm_warp)
      for (int row = blockIdx.x; row < rows; row += grid) {
        if (row != blockIdx.x) lay_base(row);
        const Row x1 = assemble<AttnS::SPLITS>(exchange, shared.base, row);
#pragma unroll
        for (int i = 0; i < 6; ++i)
          row_gamma.v[i] = quad(shared.norm2 + Row::feature(i)),
          row_beta.v[i] = quad(shared.norm2 + D + Row::feature(i));
        normalize_row(x1, row_gamma, row_beta, exchange.h[1], row);
      }
    receive_fragments<Mine>(exchange.h[1], rows, a);
  } else {
    receive_rows<HALVES>(exchange.x1, rows, v);
    if (shared.TIGHT && has_proj) bring_proj(narrow, 0);  // not before: it would delay x1
#pragma unroll
    for (int s = 0; s < 4; ++s)
      gamma[s] = quad(shared.norm2 + norm_feature(s)), beta[s] = quad(shared.norm2 + D + norm_feature(s));
    layernorm<HALVES>(v, gamma, beta, shared.moments, a);
  }
  for (int slice = wide; slice < FcS::COUNT; slice += grid) {
    if (slice != wide) {
      next_slice();
      bring_fc(slice, 0);
    }
    dense<FcS, W, Mine>(a, shared.fc, shared.fc_sums(), fc_arrived, parity, shared.b_fc, slice, rows, watch,
                        [&](int row, int column, float4 sum) {
                          send(exchange.f.at(row, column),
                               make_float4(gelu(sum.x), gelu(sum.y), gelu(sum.z), gelu(sum.w)));
                        });
  }

  parity = 0;
  for (int slice = narrow; slice < ProjS::COUNT; slice += grid) {
    if (slice != narrow) {
      next_slice();
      bring_proj(slice, 0);
    }
    project<ProjS, W, MT, Mine>(shared, proj_arrived, parity, exchange, slice, rows, output, watch, guard,
                                slice + grid >= ProjS::COUNT);
  }
  if (threadIdx.x == 0)
    workspace.epoch[blockIdx.x] = {last.launches + 1, static_cast<uint32_t>(rows), C::SPLIT, C::SPLIT_PROJ};
  guard.judge();
}

}  // namespace small
