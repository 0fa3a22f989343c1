/* 2^v to two units in the last place, subnormal results flushed to zero. PTX ISA 9.0, section 9.7.3.21, "ex2". */
#pragma once

__device__ inline float exp2_approx(float v) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}
