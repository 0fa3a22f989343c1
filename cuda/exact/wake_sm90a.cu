/* Wakes the exact kernel from beside a chain's last products, which multiply by wgmma and so must not call anything. */
#include "common/sync_sm90a.cuh"
#include "exact/wake_sm90a.cuh"

// 32 registers find a place beside a product with 384 threads of 168.
extern "C" __global__ void __maxnreg__(32) wake(const __grid_constant__ Wake args) {
  // PTX ISA 9.0, 9.7.9.16: a cold memory has them before they are asked for
  asm volatile("prefetch.global.L2 [%0];" ::"l"(args.exact.alarms));
  asm volatile("prefetch.global.L2 [%0];" ::"l"(args.awake));
  // For its predecessor, whose blocks all run: who waits for a kernel that has yet to begin may keep out a cooperative grid that keeps out that kernel.
  unsigned polls = 0;
  if (args.exact.watchers > 0)
    while (load_acquire(args.exact.alarms + ALARMS_WATCHED) != args.exact.watchers) bound(++polls);
  else
    pdl_wait();
  const unsigned loud = __ldcg(args.awake) | any_raised(args.exact.alarms);
  if (loud && threadIdx.x == 0) wake_if_needed(args);
}
