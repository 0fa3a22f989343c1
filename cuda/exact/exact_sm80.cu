/* The exact block on sm_80: grid = SMs (cooperative), 256 threads, 87,552 bytes of shared memory. See portable.cuh. */
#include "exact/exact_sm80.cuh"

extern "C" __global__ void __launch_bounds__(EXACT_THREADS, 1) exact(const ExactArgs args) {
  exact_block<ExactSm80>(args);
}
