/* Two or four floats at a time. */
#pragma once

namespace small {

__device__ __forceinline__ float4 add(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ __forceinline__ float2 add(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }

__device__ __forceinline__ float4 quad(const float* p) { return *reinterpret_cast<const float4*>(p); }
__device__ __forceinline__ float2 pair(const float* p) { return *reinterpret_cast<const float2*>(p); }

}  // namespace small
