/* What follows where a CTA has raised an alarm: all of them read what the alarms say and, if the fast result must not
   stand, compute the block again exactly. Nothing of it is needed, nor fetched, while weights are as usual. */
#pragma once

#include "exact/exact_few_sm90a.cuh"
#include "small/layout.cuh"

namespace small {

/* By all threads of all CTAs, for as many rows as few_rows() takes. `shared`: exact90::FEW_BYTES. */
__device__ __forceinline__ void rescue(const Args& args, float* shared) {
  const ExactArgs again{args.x_copy ? args.x_copy : args.x,
                        args.output,
                        args.weights,
                        args.exact,
                        args.alarms,
                        args.rows,
                        args.seq_len,
                        args.causal,
                        EXACT_CAST | EXACT_FORWARD,
                        args.rule,
                        0,
                        0,
                        static_cast<int>(gridDim.x)};
  const exact90::Crew all{static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)};
  if (threadIdx.x == 0) exact90::crew = all;
  GridBarrier grid(args.exact, all.rank, all.size);
  const auto meet = [&] {
    __syncthreads();
    if (threadIdx.x == 0) grid.meet();
    __syncthreads();
  };
  meet();  // everybody's alarms are there, and what everybody has stored: x's copy, output
  bool raised;
  if (must_rescue(args.alarms, args.rule, raised)) {
    exact90::few_rows<exact90::FEW_ROWS>(again, shared);
  } else {
    meet();
  }
  if (blockIdx.x == 0 && threadIdx.x < ALARMS) args.alarms[threadIdx.x] = 0;  // all have read them
}

}  // namespace small
