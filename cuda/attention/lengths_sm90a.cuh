/* How large scores can be, before they are there: |q k| <= |q| |k|. QKV leaves the squares of each head's longest query and key; a warp that attention leaves
   idle tells the consumers their product. */
#pragma once
#include "attention/attention_tile_sm90a.cuh"
#include "common/sync_sm90a.cuh"
#include "gemm/longest_rows_sm90a.cuh"

template <class T>
__device__ __forceinline__ void tell_lengths(const AttentionSmem<T>& smem, int seq_len, RowGroups groups, const float2* longest) {
  const int lane = threadIdx.x % 32, row_group = min(lane, T::ROW_GROUPS - 1), head = attention_work<T>(seq_len, groups, row_group).head;
  pdl_wait();
  const float2 query = __ldcg(longest + longest_at(2 * head) / 2), key = __ldcg(longest + longest_at(2 * (HEADS + head)) / 2);
  if (lane >= T::ROW_GROUPS) return;
  store_shared(smem.squares(lane), (query.x + query.y) * (key.x + key.y));
  mbarrier_arrive(smem.measured());
}
