/* Waking the exact kernel behind a fast chain. In a CUDA graph it is a node that is disabled, which costs nothing,
   where a kernel that looks at the alarms and ends costs 0.6 to 2 us (H200). A thread of the chain looks instead, when
   all alarms are raised, and enables the node with this call's arguments, or disables it again. */
#pragma once
#include <cuda_device_runtime_api.h>

#include <cstddef>

#include "exact/exact.cuh"

struct Wake {
  ExactArgs exact;
  cudaGraphDeviceNode_t node;  // the exact kernel's, which sleeps
  unsigned* awake;             // 0 while the node is disabled
};
static_assert(sizeof(Wake) == 88 && sizeof(ExactArgs) == 72);  // as src/cuda/exact/sleep.rs puts them together

// By one thread; better no result than a wrong one
__device__ __forceinline__ void set_param(const Wake& wake, size_t offset, const void* value, size_t size) {
  if (cudaGraphKernelNodeSetParam(wake.node, offset, value, size) != cudaSuccess) bound<0>(~0u);
}
// Enables the node with this call's arguments, or disables it. By one thread
__device__ __forceinline__ void set_awake(const Wake& wake, bool rescue) {
  if (rescue) set_param(wake, 0, &wake.exact, sizeof wake.exact);
  if (cudaGraphKernelNodeSetEnabled(wake.node, rescue) != cudaSuccess) bound<0>(~0u);
}
