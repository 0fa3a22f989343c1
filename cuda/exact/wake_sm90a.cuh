/* Waking the exact kernel behind a fast chain. In a CUDA graph it is a node that is disabled, which costs nothing, where a kernel that looks at the alarms
   and ends costs 0.6 to 2 us (H200). A thread of the chain looks instead, when all alarms are raised, and enables the node with this call's arguments, or
   disables it again. */
#pragma once
#include <cuda_device_runtime_api.h>

#include "exact/exact.cuh"

struct Wake {
  ExactArgs exact;
  cudaGraphDeviceNode_t node;  // or null: it does not sleep
  unsigned* awake;             // whether the node is enabled
};
static_assert(sizeof(Wake) == 88 && sizeof(ExactArgs) == 72);  // as src/cuda/exact.rs puts them together

// By one thread
__device__ __forceinline__ void wake_if_needed(const Wake& wake) {
  bool raised;
  const bool rescue = must_rescue(wake.exact.alarms, wake.exact.rule, raised);
  if (raised && !rescue)  // else the exact kernel does
    for (int i = 0; i < ALARMS; i++) wake.exact.alarms[i] = 0;
  if (!rescue && __ldcg(wake.awake) == 0) return;
  *wake.awake = rescue;
  bool done = true;
  if (rescue) done = cudaGraphKernelNodeSetParam(wake.node, 0, &wake.exact, sizeof wake.exact) == cudaSuccess;
  done = cudaGraphKernelNodeSetEnabled(wake.node, rescue) == cudaSuccess && done;
  if (!done) bound(~0u);  // better no result than a wrong one
}
