/* The whole block for 1 to 32 rows, or 64 prepared sequences of one token, in one launch:
   out = x1 + gelu(LN2(x1) W_fc + b_fc) W_proj + b_proj, x1 = x + attention(LN1(x) W_qkv + b_qkv) W_attn + b_attn.

   Shapes: x, output (rows, 768) fp32, rows = batch seq_len <= ROWS C::PASSES; they may be the same buffer.
   Grid: up to 64 clusters of two, of neighbours that draw the same activations, all resident at once, hence a
   cooperative launch, or one that nothing keeps out (src/cuda/lone.rs); 416 threads: twelve warps compute, one brings
   (producer.cuh).
   Shared memory: sizeof(Shared<ROWS, W, SINGLE>), or SHARED_BYTES (again.cuh). A block's weights are
   on their way long before they are used. Limiter: the exchanges of activations through L2, one after the other (up to
   16 rows three, five above, one less where the matrix is Merged; and from SM to SM one, of 9 to 16 rows four), and the
   bytes from L2 to the SMs, activations and weights together.

   SINGLE: sequences of one token. The softmax over a single key is 1, so attention is V, and Q and K are not computed;
   from prepared weights not V either (merge.cuh), and x1 is the first that is sent. More than 32 of them are multiplied
   32 at a time, in PASSES, a slice's weights staying in registers.

   Here with fp16 operands, from prepared weights or from fp32 ones, which are watched on their way (watch.cuh): where
   fp16 does not hold them all blocks compute the call again (again.cuh). fp32.cuh has the same in fp32.

   x is read before anything that output depends on is sent, and output is written after everything was received: they
   may be the same; then `x_copy`, else null, gets x once more for who computes the call again. A grid smaller than the
   slices are many takes them in turns; of one to three blocks it would wait for itself. */
#pragma once

#include "small/again.cuh"
#include "small/bystander.cuh"
#include "small/fp32.cuh"
#include "small/phases.cuh"
#include "small/producer.cuh"

namespace small {

__device__ __forceinline__ int norm_feature(int s) { return threadIdx.x / 32 * 64 + 16 * s + threadIdx.x % 4 * 4; }

/* What a lane holds for layernorm() of eight rows from `first` on; zeros below the last row. */
__device__ __forceinline__ void load_rows(const float* x, int first, int rows, float4 (&v)[4]) {
  const int row = first + threadIdx.x % 32 / 4;
#pragma unroll
  for (int s = 0; s < 4; ++s)
    v[s] = row < rows ? load_early(x + row * D + norm_feature(s)) : make_float4(0, 0, 0, 0);
}
__device__ __forceinline__ void receive_rows(const Blocked<float, D>& x1, int first, int rows, float4 (&v)[4]) {
  const int row = first + threadIdx.x % 32 / 4;
  uint4 bits[4];
  receive(bits, nullptr, [&](int s) -> const void* { return row < rows ? x1.at(row, norm_feature(s)) : nullptr; });
#pragma unroll
  for (int s = 0; s < 4; ++s) v[s] = floats(bits[s]);
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

/* Q, K and V of this block's slices from LN1's output, or x1 where the matrix is Merged. next_slice() turns `parity`
   over. */
template <class Shared, class Watch, int STEPS, int MT, class NextSlice>
__device__ __forceinline__ void project_qkv(Shared& shared, Exchange& exchange, uint32_t (&a)[STEPS][MT][4],
                                            const float* x, const Place& place, int turn, int all_rows,
                                            const uint32_t& parity, Watch& watch, NextSlice next_slice) {
  using C = typename Shared::C;
  using S = typename C::Qkv;
  const int warp = threadIdx.x / 32;
  for (int slice = place.wide; slice < S::COUNT; slice += place.grid) {
    if (slice != place.wide) next_slice();
    Fragments<S, typename C::Weights, STEPS> weights;
    each_pass<C, MT>(all_rows, [&](int first, int rows) {
      float2 residual = make_float2(0, 0);
      if (const Pair<S> mine(turn); C::MERGED && mine.row < rows)
        residual = load_early_pair(x + (first + mine.row) * D + S::column(slice) + mine.c);
      if (first == 0) {
        barrier_wait(&shared.qkv_arrived[16 * STEPS * warp / S::PART_ROWS], parity);
        weights.take(shared.qkv(), STEPS * warp);
      }
      if constexpr (C::PASSES > 1) receive_fragments<MT>(exchange.h[0], first, rows, a), computing_sync();
      dense<C::HALVES>(a, weights, shared.qkv_sums(), shared.b_qkv, shared.qkv_arrived, parity, slice, turn, rows,
                       [&](int row, int column, float2 sum) {
                         if constexpr (C::MERGED)
                           send(exchange.x1.at(first + row, column), add(sum, residual));
                         else
                           send(column < 2 * D ? exchange.qk.at(row, column) : exchange.v.at(row, column - 2 * D), sum);
                       });
    });
    watch.look(weights);
  }
}

/* By a warp of each block: LN2 of x1 of every grid-th row from the block's number on. */
template <class RowOfX1>
__device__ __forceinline__ void second_norm(Exchange& exchange, const float* norm2, int rows, int grid,
                                            RowOfX1 row_of_x1) {
  for (int row = blockIdx.x; row < rows; row += grid) {
    const Row x1 = row_of_x1(row);
    Row gamma, beta;
#pragma unroll
    for (int i = 0; i < 6; ++i)
      gamma.v[i] = quad(norm2 + Row::feature(i)), beta.v[i] = quad(norm2 + D + Row::feature(i));
    normalise_row(x1, gamma, beta, exchange.h[1], row);
  }
}

/* The twelve warps that compute. */
template <class W, class Shared>
__device__ __forceinline__ void compute(const Call<W>& call, Shared& shared) {
  using C = typename Shared::C;
  constexpr int MT = C::MT;
  using QkvS = typename C::Qkv;
  using AttnS = typename C::Attn;
  using FcS = typename C::Fc;
  using ProjS = typename C::Proj;
  const Place place;
  const int rows = call.rows, warp = threadIdx.x / 32;
  const bool has_qkv = place.wide < QkvS::COUNT;
  static_assert(!C::PAIRED || QkvS::COUNT % 2 == 0);
  const int turn = C::PAIRED ? 8 * cluster_rank() : 0;  // the rows it normalises come first: row r is in place r ^ turn
  constexpr Asked PROJ_ASKED = asked<Shared>();

  cluster_arrive();
  pdl_wait();
  // What LN1 needs is asked for before anything else.
  float4 v[4], gamma[4], beta[4];
  Row row_x, row_gamma, row_beta;
  const bool is_norm_warp = C::SPLIT && warp == WARPS - 1;  // does a row for everybody
  if constexpr (C::SPLIT) {
    if (is_norm_warp && blockIdx.x < rows)
      load_norm_row<W>(row_x, row_gamma, row_beta, call.x + blockIdx.x * D, call.vectors.norm1);
  } else if (has_qkv) {
    load_rows(call.x, turn, rows, v);
    load_norm<W>(call.vectors.norm1, gamma, beta);
  }

  const uint2 calls = calls_before(call.workspace);
  named_barrier_arrive(ASKED, BLOCK);
  if constexpr (C::PAIRED) cluster_wait();
  Exchange& exchange = call.workspace.copy[calls.x % 2];
  WatchOf<W> qkv_watch, watch;
  constexpr int STEPS = D / WARPS / 16;
  uint32_t a[STEPS][MT][4];
  uint32_t parity =
      0;  // of the arrivals: the first slice's, then the next one's if the grid is smaller than the slices are many
  const auto next_slice = [&] {
    fence_async_shared();
    __syncthreads();
    parity ^= 1;
  };
  const auto normalise = [&](bool again) {
    if constexpr (!C::SPLIT) layernorm<C::HALVES == 1>(v, gamma, beta, shared.moments, a);
    if constexpr (C::PAIRED) shared.peer_rows.swap(a, again);
  };

  if (is_norm_warp)
    for (int row = blockIdx.x; row < rows; row += place.grid) {
      if (row != blockIdx.x) load_norm_row<W>(row_x, row_gamma, row_beta, call.x + row * D, call.vectors.norm1);
      normalise_row(row_x, row_gamma, row_beta, exchange.h[0], row);
    }
  if (has_qkv) {
    if constexpr (!C::SPLIT)
      normalise(false);
    else if constexpr (C::PASSES == 1)
      receive_fragments<MT>(exchange.h[0], 0, rows, a);
    named_barrier_sync(READY, BLOCK);
    project_qkv(shared, exchange, a, call.x, place, turn, rows, parity, qkv_watch, next_slice);
    if constexpr (PROJ_ASKED == WITH_QKV) fence_async_shared();  // W_proj will lie where W_qkv and its sums lay
  } else {
    named_barrier_sync(READY, BLOCK);
  }
  qkv_watch.lay_down(shared, MATRIX_QKV);
  const Bystander bystander(QkvS::COUNT);
  if (call.x_copy) bystander.save(call.x, call.x_copy, rows);
  if constexpr (W::WATCHED) bystander.watch(call.vectors, Verdict(*call.again, calls.y).alarms(), shared.loud);

  const auto lay_base = [&](int row) {  // of the row this warp will put together; a lane reads what it wrote
#pragma unroll
    for (int i = 0; i < 6; ++i)
      *reinterpret_cast<float4*>(shared.base + Row::feature(i)) =
          add(load_early(call.x + row * D + Row::feature(i)), W::vector(call.vectors.b_attn + Row::feature(i)));
  };
  if (!C::MERGED && is_norm_warp && blockIdx.x < rows) lay_base(blockIdx.x);
  if constexpr (!C::MERGED) {
    parity = 0;
    for (int slice = place.narrow(); slice < AttnS::COUNT; slice += place.grid) {
      if (slice >= place.grid) {
        next_slice();
        if constexpr (C::PAIRED) cluster_arrive(), cluster_wait();  // the peer has read what it got
      }
      attend<AttnS, W, MT, C::HALVES>(shared, shared.attn_arrived, parity, exchange, call.x, slice, rows, call.seq_len,
                                      call.causal, watch, [&] {
                                        if (PROJ_ASKED == WITH_QKV && slice + place.grid >= AttnS::COUNT)
                                          named_barrier_arrive(PROJ, BLOCK);
                                      });
    }
    if (PROJ_ASKED == WITH_QKV && place.narrow() >= AttnS::COUNT) named_barrier_arrive(PROJ, BLOCK);
  }
  watch.lay_down(shared, MATRIX_ATTN);
  if constexpr (PROJ_ASKED == BEHIND_ATTENTION) {  // qkv's place is free of weights, sums, K and V
    fence_async_shared();
    named_barrier_arrive(PROJ, BLOCK);
  }

  parity = 0;
  Fragments<FcS, W, STEPS> fc;
  const auto take_fc = [&] {
    barrier_wait(&shared.fc_arrived[16 * STEPS * warp / FcS::PART_ROWS], parity);
    fc.take(shared.fc, STEPS * warp);
  };
  if constexpr (!C::SPLIT) take_fc(), fc.pin();
  barrier_wait(&shared.norm2_arrived, 0);
  if constexpr (C::SPLIT) {
    if (is_norm_warp)
      second_norm(exchange, shared.norm2, rows, place.grid, [&](int row) {
        if constexpr (C::MERGED) return receive_row(exchange.x1, row);
        if (row != blockIdx.x) lay_base(row);
        return assemble<AttnS::SPLITS>(exchange, shared.base, row);
      });
    if constexpr (C::PASSES == 1) receive_fragments<MT>(exchange.h[1], 0, rows, a);
    take_fc();
  } else {
#pragma unroll
    for (int s = 0; s < 4; ++s)
      gamma[s] = quad(shared.norm2 + norm_feature(s)), beta[s] = quad(shared.norm2 + D + norm_feature(s));
    receive_rows(exchange.x1, turn, rows, v);
    if constexpr (PROJ_ASKED == WITH_X1) named_barrier_arrive(PROJ, BLOCK);
    normalise(has_qkv);
  }
  for (int slice = place.wide; slice < FcS::COUNT; slice += place.grid) {
    if (slice != place.wide) next_slice(), take_fc();
    each_pass<C, MT>(rows, [&](int first, int here) {
      if constexpr (C::PASSES > 1) receive_fragments<MT>(exchange.h[1], first, here, a), computing_sync();
      dense<C::HALVES>(a, fc, shared.fc_sums(), shared.b_fc, shared.fc_arrived, parity, slice, turn, here,
                       [&](int row, int column, float2 sum) {
                         send(exchange.f.at(first + row, column), make_float2(gelu(sum.x), gelu(sum.y)));
                       });
    });
    watch.look(fc);
  }
  watch.lay_down(shared, MATRIX_FC);

  parity = 0;
  if constexpr (!C::PAIRED) cluster_wait();
  for (int slice = place.narrow(); slice < ProjS::COUNT; slice += place.grid) {
    if (slice >= place.grid) {
      next_slice();
      cluster_arrive(), cluster_wait();  // the peer has read what it got
    }
    project<ProjS, W, MT, C::HALVES>(shared, shared.proj_arrived, parity, exchange, slice, rows, call.output, watch,
                                     slice + place.grid >= ProjS::COUNT);
  }
  if (place.narrow() >= ProjS::COUNT) watch.lay_down(shared, MATRIX_PROJ);
}

template <int ROWS, bool SINGLE, class W>
__device__ __forceinline__ void block(const Call<W>& call) {
  extern __shared__ __align__(512) unsigned char raw[];
  auto& shared = *reinterpret_cast<Shared<ROWS, W, SINGLE>*>(raw);
  if (threadIdx.x / 32 == WARPS)
    produce(call, shared);
  else if constexpr (Cut<ROWS, W, SINGLE>::IN_FP32)
    compute_in_fp32(call, shared);
  else
    compute(call, shared);
  if constexpr (!Cut<ROWS, W, SINGLE>::IN_FP32) {
    if (!call.is_judged()) return;
    __syncthreads();
    if (shared.again) compute_again(*call.again, call.x_copy != nullptr, shared);
  }
}

}  // namespace small
