/* Wakes the exact kernel from beside a chain's last products, which multiply by wgmma and so must not call anything. */
#include "common/sync_sm90a.cuh"
#include "exact/wake_sm90a.cuh"

// Looks at an alarm word of about 0.7 us each, 0.1 ms together: the kernel that raises the last ones ends 10 us after this one has begun.
constexpr unsigned PATIENCE = 150;

// By one thread. `known`: all alarms are raised; else the exact kernel is to look for itself. `awake`: from an earlier call
__device__ __forceinline__ void wake_if_needed(const Wake& wake, bool known, bool awake) {
  bool raised = false;
  const bool rescue = !known || must_rescue(wake.exact.alarms, wake.exact.rule, raised);
  if (raised && !rescue)  // else the exact kernel does
    for (int i = 0; i < ALARMS; i++) wake.exact.alarms[i] = 0;
  if (!rescue && !awake) return;
  *wake.awake = rescue;
  set_awake(wake, rescue);
  // The first three parameters are the caller's buffers, which only the first kernel is given: the host has a node less
  // to change for a call on others.
  if (rescue) set_param(wake, 0, wake.exact.alarms + ALARMS_BUFFERS, 3 * sizeof(void*));
}

// 32 registers find a place beside a product with 384 threads of 168.
extern "C" __global__ void __maxnreg__(32) wake(const __grid_constant__ Wake args) {
  // PTX ISA 9.0, 9.7.9.15: a cold memory has them before they are asked for
  asm volatile("prefetch.global.L2 [%0];" ::"l"(args.exact.alarms));
  asm volatile("prefetch.global.L2 [%0];" ::"l"(args.awake));
  pdl_wait();
  // Those of the kernels before. By an address of its own, or the compiler would hand the same values to whoever looks again below.
  const unsigned* alarms = args.exact.alarms;
  asm volatile("" : "+l"(alarms));
  const bool awake = __ldcg(args.awake) != 0, early = any_raised(alarms) || awake;
  // Watchers may have yet to begin, so nobody waits for them without end: this kernel may keep out a cooperative grid that keeps them out.
  unsigned watched = 0;
  if (args.exact.watchers > 0) {
#pragma unroll 1
    for (unsigned polls = 0; polls < PATIENCE; polls++) {
      watched = load_acquire(args.exact.alarms + ALARMS_WATCHED);
      if (watched % WATCHED_RAISED == args.exact.watchers) break;
    }
  }
  const bool known = watched % WATCHED_RAISED == args.exact.watchers;
  if ((early || watched != args.exact.watchers) && threadIdx.x == 0) wake_if_needed(args, known, awake);
}
