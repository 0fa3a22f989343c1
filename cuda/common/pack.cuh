/* fp32 to fp16, several values at a time, as the words that 8- and 16-byte stores take. */
#pragma once

#include <cuda_fp16.h>

__device__ inline unsigned pack_half2(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&pair);
}

__device__ inline uint2 pack_half4(float4 v) { return make_uint2(pack_half2(v.x, v.y), pack_half2(v.z, v.w)); }
