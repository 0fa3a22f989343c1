/* Fragments of mma.m16n8k16 out of shared memory, 16 x 16 elements at a time. PTX ISA 9.0, section 9.7.14.5.15,
   "ldmatrix" (sm_75 and newer). Each function takes the address of the 16 x 16 block's first element. */
#pragma once

#include "common/address.cuh"
#include "common/tile.cuh"

__device__ inline void ldmatrix(unsigned (&r)[4], const __half* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

__device__ inline void ldmatrix_transposed(unsigned (&r)[4], const __half* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// A operand: a block of (m, k) rows. r = the four registers of one fragment.
template <class T>
__device__ void load_a(unsigned (&r)[4], const __half* block, int lane) {
  ldmatrix(r, block + lane % 16 * T::PITCH + lane / 16 * 8);
}

// B operand from a block of (k, n) rows, n contiguous. r[0..1] = fragment of columns 0..7, r[2..3] = of columns 8..15.
template <class T>
__device__ void load_b_kn(unsigned (&r)[4], const __half* block, int lane) {
  ldmatrix_transposed(r, block + lane % 16 * T::PITCH + lane / 16 * 8);
}

// B operand from a block of (n, k) rows, k contiguous. r as above.
template <class T>
__device__ void load_b_nk(unsigned (&r)[4], const __half* block, int lane) {
  ldmatrix(r, block + (lane % 8 + lane / 16 * 8) * T::PITCH + lane / 8 % 2 * 8);
}
