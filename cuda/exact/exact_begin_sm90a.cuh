/* How the resident exact kernels of Hopper begin: whether there is anything to compute, and by whom. */
#pragma once

#include "exact/exact_crew_sm90a.cuh"

namespace exact90 {

// They run or have ended, because this kernel starts only when their blocks have let it. One thread of a block asks:
// all of the grid at one word would wait for one another.
__device__ __forceinline__ void await_watchers(const ExactArgs& args) {
  unsigned polls = 0;
  if (threadIdx.x == 0)
    while (load_acquire(args.alarms + ALARMS_WATCHED) % WATCHED_RAISED != args.watchers) bound<MOST_POLLS>(++polls);
  __syncthreads();
}

// Whether this block is to compute; it is then one of `crew`.
__device__ __forceinline__ bool join_crew(const ExactArgs& args) {
  if (args.watchers == WATCHERS_UNKNOWN) pdl_wait();
  if (args.watchers > 0) await_watchers(args);
  const bool quiet = args.rule != RULE_EXACT && !any_raised(args.alarms);
  // Usually in any case: what ends with this kernel must not before the one in front of it.
  if (!quiet || args.watchers != WATCHERS_STANDING) pdl_wait();
  if (quiet) asm volatile("exit;");  // 9.7.12.7; usually all; as an exit it is worth 0.35 us of the chain at 1024 rows on an H200
  bool raised;
  if (args.phases & EXACT_FORWARD && !must_rescue(args.alarms, args.rule, raised)) {
    // Without alarms the fast result stands, too: no matter who reads them before or after this.
    if (raised && !args.keep_alarms && blockIdx.x == 0 && threadIdx.x < ALARMS) args.alarms[threadIdx.x] = 0;
    return false;
  }
  __syncthreads();  // everybody has read the alarms, which the last block to gather clears
  if (threadIdx.x == 0) crew = args.rule == RULE_EXACT ? Crew{static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)} : gather(args);
  __syncthreads();
  return crew.size != 0;
}

}  // namespace exact90
