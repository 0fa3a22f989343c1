/* The exact block on sm_75: grid = SMs (cooperative), 256 threads, 46,080 bytes of shared memory. See portable.cuh. */
#include "exact/exact_sm75.cuh"

extern "C" __global__ void __launch_bounds__(EXACT_THREADS, 1) exact(const ExactArgs args) {
  exact_block<ExactSm75>(args);
}
