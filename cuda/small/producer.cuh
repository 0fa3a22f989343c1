/* The thirteenth warp: it brings the weights, makes the workspace ready for the next launch and says what was unusual
   about the weights, so that the warps that compute, between two exchanges, run through little code. */
#pragma once

#include "small/exchange.cuh"
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
  float* x_copy;     // or null: x once more
  const Wake* wake;  // of fp32 weights
};

/* The first slices of this CTA; the next ones follow at a distance of the grid. The narrow matrices' start three
   quarters round the grid: where they or qkv's are fewer than the CTAs, different ones go without. */
struct Place {
  int grid = gridDim.x, wide = blockIdx.x, narrow = (blockIdx.x + 3 * (gridDim.x / 4)) % gridDim.x;
};

/* When W_proj is asked for. A CTA's words of the exchange stand behind all that it has asked for before, at 60 bytes a
   clock, so W_proj comes under what is computed, not under an exchange: fp32 weights with q, k and v, when the place of
   W_qkv is free as well, prepared ones with x1. Up to 8 rows the other way round took 0.1 to 0.2 and 0.1 to 0.6 us more
   (H200). */
enum Asked { AT_ONCE, WITH_QKV, BEHIND_ATTENTION, WITH_X1 };
template <int MT, class W>
__host__ __device__ constexpr Asked asked() {
  constexpr bool TIGHT = Shared<MT, W>::TIGHT;
  return MT > 1 ? (TIGHT ? BEHIND_ATTENTION : AT_ONCE) : (TIGHT ? WITH_QKV : WITH_X1);
}

template <class S>
__device__ __forceinline__ int slices_from(int first) {
  return first < S::COUNT ? (S::COUNT - 1 - first) / static_cast<int>(gridDim.x) + 1 : 0;
}

template <int MT, class W>
__device__ __forceinline__ void produce(const Call<W>& call, Shared<MT, W>& shared) {
  using C = Cut<MT, W::SPLIT_PROJ>;
  using QkvS = typename C::Qkv;
  using AttnS = typename C::Attn;
  using FcS = typename C::Fc;
  using ProjS = typename C::Proj;
  const Place place;
  const auto bring_qkv = [&](int slice) {
    W::template bring<QkvS>(shared.qkv(), shared.b_qkv, call.matrices, call.vectors.b_qkv, slice, shared.qkv_arrived);
  };
  const auto bring_attn = [&](int slice) {
    W::template bring<AttnS>(shared.attn, shared.b_attn, call.matrices, call.vectors.b_attn, slice,
                             &shared.attn_arrived);
  };
  const auto bring_fc = [&](int slice) {
    W::template bring<FcS>(shared.fc, shared.b_fc, call.matrices, call.vectors.b_fc, slice, &shared.fc_arrived);
  };
  const auto bring_proj = [&](int slice) {
    W::template bring<ProjS>(shared.proj(), shared.b_proj, call.matrices, call.vectors.b_proj, slice,
                             &shared.proj_arrived);
  };
  const auto bring_next = [&](int first, int count, auto bring) {
    for (int slice = first + place.grid; slice < count; slice += place.grid) {
      __syncthreads();  // the one before is used up
      bring(slice);
    }
  };
  constexpr Asked PROJ_ASKED = asked<MT, W>();
  const auto bring_first_proj = [&] {
    if (PROJ_ASKED != AT_ONCE) named_barrier_sync(PROJ, BLOCK);
    if (place.narrow < ProjS::COUNT) bring_proj(place.narrow);
  };

  if (elect_one()) {
#pragma unroll
    for (int i = 0; i < 4; ++i) barrier_init(&shared.qkv_arrived[i], W::ARRIVALS);
    for (uint64_t* bar : {&shared.attn_arrived, &shared.norm2_arrived, &shared.fc_arrived, &shared.proj_arrived})
      barrier_init(bar, W::ARRIVALS);
    for (uint64_t& bar : shared.watched) barrier_init(&bar, THREADS);
    barrier_init_fence();
    shared.loud = 0;
  }
  __syncwarp();
  named_barrier_arrive(READY, BLOCK);
  named_barrier_sync(ASKED, BLOCK);  // not before: it would delay LN1's input
  if (place.wide < QkvS::COUNT) bring_qkv(place.wide);
  const Epoch last = call.workspace.epoch[blockIdx.x];

  named_barrier_sync(OTHERS, BLOCK);  // not before: they would delay LN1's input and W_qkv
  W::bring_norm(shared.norm2, call.vectors.norm2, &shared.norm2_arrived);
  if (place.narrow < AttnS::COUNT) bring_attn(place.narrow);
  bring_fc(place.wide);
  if constexpr (PROJ_ASKED == AT_ONCE) bring_first_proj();
  bring_next(place.wide, QkvS::COUNT, bring_qkv);

  clear(call.workspace.copy[~last.launches % 2], min(last.rows, MAX_ROWS), last.split, last.split_proj);
  const Guard guard{call.wake, last.launches};
  unsigned awake = 0;
  if (call.wake) {
    guard.clear_other();
    if (call.wake->node != nullptr) awake = load_strong_word(call.wake->awake);
  }

  if constexpr (PROJ_ASKED == WITH_QKV) bring_first_proj();
  bring_next(place.narrow, AttnS::COUNT, bring_attn);
  if constexpr (PROJ_ASKED == BEHIND_ATTENTION || PROJ_ASKED == WITH_X1) bring_first_proj();
  bring_next(place.wide, FcS::COUNT, bring_fc);
  bring_next(place.narrow, ProjS::COUNT, bring_proj);

  if constexpr (sizeof(typename W::Element) == 4) {
    const auto count = [](auto slice, int first, int times) {
      using S = decltype(slice);
      return slices_from<S>(first) * S::ROWS * S::WIDTH * times;
    };
    const int qkv = count(QkvS(), place.wide, 1), attn = count(AttnS(), place.narrow, MT),
              fc = count(FcS(), place.wide, 1), proj = count(ProjS(), place.narrow, 1);
    bool loud = false;
#pragma unroll 1
    for (int m = 0; m < 4;
         ++m) {  // rolled: unrolled it ended 2.5 us behind all others (H200), as cold code of one warp
      barrier_wait(&shared.watched[m], 0);
      loud |= report(shared.seen[m], guard.alarms(), m,
                     m == MATRIX_QKV    ? qkv
                     : m == MATRIX_ATTN ? attn
                     : m == MATRIX_FC   ? fc
                                        : proj);
    }
    if (threadIdx.x % 32 == 0) guard.judge(loud || shared.loud, awake);
  }
}

}  // namespace small
