/* The thirteenth warp: it brings the weights, makes the workspace ready for the next launch and says what was unusual
   about the weights, so that the warps that compute, between two exchanges, run through little code. */
#pragma once

#include "small/exchange.cuh"
#include "small/pace.cuh"
#include "small/shared.cuh"
#include "small/watch.cuh"

namespace small {

/* One call. */
template <class W>
struct Call {
  const float* x;
  float* output;
  const typename W::Matrices& matrices;
  Vectors vectors;
  Workspace& workspace;
  int rows, seq_len;
  bool causal;
  float* x_copy;           // or null: x once more
  const ExactArgs* again;  // but of products in fp32: the same call for exact_few_sm90a.cuh

  // Whether it may have to be computed again. Of prepared weights the host may know that it must not: no alarms then.
  __device__ __forceinline__ bool is_judged() const { return W::WATCHED || again->alarms != nullptr; }
};

/* The first slices of this block; the next ones follow at a distance of the grid. The narrow matrices' start some three
   quarters round the grid: where they or qkv's are fewer than the blocks, different ones go without. Both blocks of a
   cluster have halves of the same slice (pair.cuh). */
struct Place {
  int grid = gridDim.x, wide = blockIdx.x;
  // 10.6 %ctaid: found anew each time rather than kept in a register
  __device__ __forceinline__ int narrow() const {
    int block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    const int slice = block + grid / 8 * 6;
    return slice < grid ? slice : slice - grid;
  }
};

/* When W_proj is asked for. Where it will lie in W_qkv's place, fp32, when that is free: when q, k and v have been
   received, and W_attn has been taken; or when they are used up. Else behind the others, but up to 16 rows when x1 has
   been received, so that it comes under LN2 and FC, not under an exchange: 8 rows -0.25, 12 -0.5, 16 0 (H100). */
enum Asked { AT_ONCE, WITH_QKV, BEHIND_ATTENTION, WITH_X1 };
template <class Shared>
__host__ __device__ constexpr Asked asked() {
  using C = typename Shared::C;
  if (C::FP32 && !Shared::PROJ_IN_QKV) return AT_ONCE;
  return C::FP32 ? (C::SPLIT ? BEHIND_ATTENTION : WITH_QKV) : (C::SPLIT ? AT_ONCE : WITH_X1);
}

template <class S>
__device__ __forceinline__ int slices_from(int first) {
  return first < S::COUNT ? (S::COUNT - 1 - first) / static_cast<int>(gridDim.x) + 1 : 0;
}

/* Raises the alarms that follow from what all threads have laid down of fp32 weights. Those of W_attn are seen by each
   of the MT warps that share a head. Returns in one lane whether there is one. */
template <class Shared>
__device__ __forceinline__ bool report_all(Shared& shared, const Place& place, unsigned* alarms) {
  using C = typename Shared::C;
  using QkvS = typename C::Qkv;
  using AttnS = typename C::Attn;
  using FcS = typename C::Fc;
  using ProjS = typename C::Proj;
  const auto count = [](auto slice, int first, int times) {
    using S = decltype(slice);
    return slices_from<S>(first) * S::ROWS * S::WIDTH * times;
  };
  const int qkv = count(QkvS(), place.wide, 1), attn = count(AttnS(), place.narrow(), C::MT),
            fc = count(FcS(), place.wide, 1), proj = count(ProjS(), place.narrow(), 1);
  bool loud = false;
  // Rolled: unrolled it ended 2.5 us behind all others (H200), as cold code of one warp
#pragma unroll 1
  for (int m = 0; m < 4; ++m) {
    const int weights = m == MATRIX_QKV ? qkv : m == MATRIX_ATTN ? attn : m == MATRIX_FC ? fc : proj;
    loud |= report(shared.seen[m], &shared.watched[m], alarms, m, static_cast<float>(weights));
  }
  return loud || shared.loud;
}

template <class W, class Shared>
__device__ __forceinline__ void produce(const Call<W>& call, Shared& shared) {
  using C = typename Shared::C;
  using QkvS = typename C::Qkv;
  using AttnS = typename C::Attn;
  using FcS = typename C::Fc;
  using ProjS = typename C::Proj;
  const Place place;
  Pace<C::AHEAD, C::UNROLL> first_slices;
  AtOnce later_slices;
  const auto bring_qkv = [&](int slice, auto& pace) {
    W::template bring<QkvS>(shared.qkv(), shared.b_qkv, call.matrices, call.vectors.b_qkv, slice, shared.qkv_arrived,
                            pace);
  };
  const auto bring_attn = [&](int slice, auto& pace) {
    W::template bring<AttnS>(shared.attn, shared.b_attn, call.matrices, call.vectors.b_attn, slice, shared.attn_arrived,
                             pace);
  };
  const auto bring_fc = [&](int slice, auto& pace) {
    W::template bring<FcS>(shared.fc, shared.b_fc, call.matrices, call.vectors.b_fc, slice, shared.fc_arrived, pace);
  };
  const auto bring_proj = [&](int slice, auto& pace) {
    W::template bring<ProjS>(shared.proj(), shared.b_proj, call.matrices, call.vectors.b_proj, slice,
                             shared.proj_arrived, pace);
  };
  const auto bring_next = [&](int first, int count, auto bring, bool in_pairs = false) {
    for (int slice = first + place.grid; slice < count; slice += place.grid) {
      __syncthreads();  // the one before is used up
      if (in_pairs) cluster_arrive(), cluster_wait();
      bring(slice, later_slices);
    }
  };
  constexpr Asked PROJ_ASKED = asked<Shared>();
  const auto bring_first_proj = [&] {
    if (PROJ_ASKED != AT_ONCE) named_barrier_sync(PROJ, BLOCK);
    // All that was asked for has arrived, some of it in phases that may have gone where the block has several slices
    if (PROJ_ASKED == WITH_X1) first_slices = {};
    if (place.narrow() < ProjS::COUNT) bring_proj(place.narrow(), first_slices);
  };

  if (elect_one()) {
    W::announce(call.matrices);
    for (uint64_t* bars : {shared.qkv_arrived, shared.attn_arrived, shared.fc_arrived, shared.proj_arrived})
#pragma unroll
      for (int i = 0; i < MOST_PARTS; ++i) mbarrier_init(shared_address(bars + i), W::ARRIVALS);
    mbarrier_init(shared_address(&shared.norm2_arrived), W::ARRIVALS);
    for (auto& peer : shared.peer) peer.init();
    if constexpr (C::PAIRED) shared.attn_peer.init(), shared.peer_rows.init();
    for (uint64_t& bar : shared.watched) mbarrier_init(shared_address(&bar), THREADS);
    fence_mbarrier_init();
    shared.loud = 0;
  }
  __syncwarp();
  cluster_arrive();
  named_barrier_arrive(READY, BLOCK);
  pdl_wait();  // the call before may still be running (src/cuda/lone.rs)
  pdl_launch();
  named_barrier_sync(ASKED, BLOCK);  // not before: it would delay LN1's input
  if constexpr (C::PAIRED) cluster_wait();  // where the others do, for racecheck takes it for a place where all meet
  const Epoch last = call.workspace.epoch[blockIdx.x];
  if (place.wide < QkvS::COUNT) bring_qkv(place.wide, first_slices);
  W::bring_norm(shared.norm2, call.vectors.norm2, &shared.norm2_arrived);
  if (!C::MERGED && place.narrow() < AttnS::COUNT) bring_attn(place.narrow(), first_slices);
  bring_fc(place.wide, first_slices);
  if constexpr (PROJ_ASKED == AT_ONCE) bring_first_proj();
  bring_next(place.wide, QkvS::COUNT, bring_qkv);

  // Of a new workspace, all ones, there were 2^32 - 1 rows, and all of it is cleared.
  clear(call.workspace.copy[~last.launches % 2], min(last.rows, MAX_SINGLES), last.form);
  if constexpr (W::WATCHED) Verdict(*call.again, last.watched).clear_other();
  if (elect_one()) note_call<C>(call.workspace, last, call.rows);

  if constexpr (!C::MERGED) bring_next(place.narrow(), AttnS::COUNT, bring_attn, C::PAIRED);
  if constexpr (PROJ_ASKED != AT_ONCE) bring_first_proj();
  bring_next(place.wide, FcS::COUNT, bring_fc);
  if constexpr (!C::PAIRED) cluster_wait();
  bring_next(place.narrow(), ProjS::COUNT, bring_proj, true);

  if constexpr (W::WATCHED) {
    const Verdict verdict(*call.again, last.watched);
    const bool loud = report_all(shared, place, verdict.alarms());
    if (threadIdx.x % 32 == 0) shared.again = verdict.reach(loud);
  } else if constexpr (!C::FP32) {
    bool raised;  // by who prepared them
    if (call.is_judged() && threadIdx.x % 32 == 0)
      shared.again = must_rescue(call.again->alarms, call.again->rule, raised);
  }
}

}  // namespace small
