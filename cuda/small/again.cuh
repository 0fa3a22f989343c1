/* The same call once more, where fp16 does not hold the weights: by all blocks, as exact_few_sm90a.cu computes it. */
#pragma once

#include "exact/exact_few_sm90a.cuh"
#include "small/shared.cuh"

namespace small {

/* What a launch needs. */
template <class Shared>
constexpr size_t SHARED_BYTES = sizeof(Shared) > exact90::FewShared::BYTES ? sizeof(Shared) : exact90::FewShared::BYTES;

/* By all threads, when nothing is on its way any more. `meet`: the blocks meet first, because some of them have written
   what is x now. */
template <class Shared>
__device__ __forceinline__ void compute_again(const ExactArgs& call, bool meet, Shared& shared) {
  static_assert(THREADS == exact90::THREADS && BLOCK == THREADS + 32 && MAX_ROWS <= exact90::CHUNK_ROWS);
  if (threadIdx.x == 0) {
    const auto invalidate = [](uint64_t& bar) { mbarrier_invalidate(shared_address(&bar)); };
    for (uint64_t* bars : {shared.qkv_arrived, shared.attn_arrived, shared.fc_arrived, shared.proj_arrived})
      for (int i = 0; i < MOST_PARTS; ++i) invalidate(bars[i]);
    invalidate(shared.norm2_arrived);
    for (auto& peer : shared.peer) peer.invalidate();
    if constexpr (Shared::C::PAIRED) shared.attn_peer.invalidate(), shared.peer_rows.invalidate();
    for (uint64_t& bar : shared.watched) invalidate(bar);
    exact90::crew = {static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
    if (meet) GridBarrier(call.memory, blockIdx.x, gridDim.x).meet();
  }
  __syncthreads();
  // One chunk of rows: a call of more never comes here (judges_itself() in src/cuda/hopper/plan/few.rs).
  exact90::few_block<1>(call, {reinterpret_cast<float*>(&shared)});
}

}  // namespace small
