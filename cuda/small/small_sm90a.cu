/* The kernels for few rows on sm_90a; block.cuh describes them. _16, _32: up to so many rows.
   small_f32: weights aligned to 16 bytes, through tensor maps. small_f32_unaligned: aligned to 4. small_prepared: from
   small_prepare's. */
#include "small/block.cuh"
#include "small/packed.cuh"
#include "small/stream.cuh"

namespace {

__device__ __forceinline__ small::Vectors vectors_of(const float* w) {
  return {w + GAMMA1, w + B_QKV, w + B_ATTN, w + GAMMA2, w + B_FC, w + B_PROJ};
}

// src/cuda/hopper/plan/few.rs and src/cuda/workspace.rs have these numbers too.
template <int MT, class W>
constexpr size_t SHARED = sizeof(small::Shared<MT, W>);
// Up to 16 rows the rescue needs most.
static_assert(SHARED<1, small::Fp32Weights> <= exact90::FEW_BYTES && SHARED<1, small::PackedWeights> == 171392);
static_assert(SHARED<2, small::Fp32Weights> == 214784 && SHARED<2, small::PackedWeights> == 223616);
static_assert(exact90::FEW_BYTES == 215296 && sizeof(small::Workspace) == 5310720 && sizeof(small::Prepared) == 14195712);

}  // namespace

#define SMALL(MT, ROWS)                                                                                               \
  extern "C" __global__ void __launch_bounds__(small::THREADS, 1)                                                     \
      small_f32_##ROWS(const small::Args args, const __grid_constant__ small::Fp32Weights::Matrices maps) {           \
    small::block<MT, small::Fp32Weights>(args, maps, vectors_of(args.weights));                                       \
  }                                                                                                                   \
  extern "C" __global__ void __launch_bounds__(small::THREADS, 1) small_f32_unaligned_##ROWS(const small::Args args) { \
    small::block<MT, small::UnalignedWeights>(args, {args.weights}, vectors_of(args.weights));                        \
  }

SMALL(1, 16)
SMALL(2, 32)
