/* The kernels for few rows on sm_90a from small_prepare's weights; block.cuh describes them. _16, _32: up to so many rows.
   A file, and so a module, of their own. */
#include "small/block.cuh"
#include "small/packed.cuh"

#define SMALL(MT, ROWS)                                                                                              \
  extern "C" __global__ void __launch_bounds__(small::THREADS, 1)                                                     \
      small_prepared_##ROWS(const small::Args args, const small::Prepared* p) {                                       \
    small::block<MT, small::PackedWeights>(args, {p},                                                                 \
                                           {p->norm1, p->b_qkv, p->b_attn, p->norm2, p->b_fc, p->b_proj});            \
  }

SMALL(1, 16)
SMALL(2, 32)
