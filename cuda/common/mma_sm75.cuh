/* The 16 x 8 x 16 step as two of 16 x 8 x 8, the largest that sm_75 has; the registers of the large fragments are those
   of the two small ones side by side. PTX ISA 9.0, section 9.7.14.5.14, "mma" (sm_75). */
#pragma once

struct MmaSm75 {
  static __device__ void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    half_step(d, a[0], a[1], b0);
    half_step(d, a[2], a[3], b1);
  }

 private:
  static __device__ void half_step(float (&d)[4], unsigned a0, unsigned a1, unsigned b) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b));
  }
};
