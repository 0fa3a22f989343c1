/* The exact block of up to FEW_ROWS rows on Hopper, in every precision: exact_few_sm90a.cuh. Grid and shared memory as of exact_sm90a.cu, which prepares the
   weights for this one, too; FEW_THREADS threads. */
#include "exact/exact_begin_sm90a.cuh"
#include "exact/exact_few_sm90a.cuh"

extern "C" __global__ void __launch_bounds__(exact90::FEW_THREADS, 1) exact_few(const ExactArgs args) {
  using namespace exact90;
  if (!join_crew(args)) return;
  pdl_launch();  // the next call may begin while this one ends (src/cuda/lone.rs)
  const uint32_t shared = shared_base();
  few_block<FEW_BRINGING>(args, {reinterpret_cast<float*>(dynamic_shared + (shared - shared_address(dynamic_shared)))});
}
