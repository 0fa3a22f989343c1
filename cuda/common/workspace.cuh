/* Where each parameter lies in the device workspace: `packed` holds the four matrices as fp16, `vectors` the fp32
   vectors that later stages read, moved to 256-byte-aligned storage because the caller's weights may be aligned to 4
   bytes only. */
#pragma once

#include "dims.h"

constexpr int PACKED_QKV = 0;                      // (D, 3 D)
constexpr int PACKED_ATTN = PACKED_QKV + D * QKV;  // (D, D)
constexpr int PACKED_FC = PACKED_ATTN + D * D;     // (D, FFN)
constexpr int PACKED_PROJ = PACKED_FC + D * FFN;   // (FFN, D)
constexpr int PACKED_LEN = PACKED_PROJ + FFN * D;  // halves

constexpr int VECTOR_B_QKV = 0;                    // (3 D)
constexpr int VECTOR_B_ATTN = VECTOR_B_QKV + QKV;  // (D)
constexpr int VECTOR_GAMMA2 = VECTOR_B_ATTN + D;   // (D)
constexpr int VECTOR_BETA2 = VECTOR_GAMMA2 + D;    // (D)
constexpr int VECTOR_B_FC = VECTOR_BETA2 + D;      // (FFN)
constexpr int VECTOR_B_PROJ = VECTOR_B_FC + FFN;   // (D)
constexpr int VECTOR_GAMMA1 = VECTOR_B_PROJ + D;   // (D)
constexpr int VECTOR_BETA1 = VECTOR_GAMMA1 + D;    // (D)
constexpr int VECTORS_LEN = VECTOR_BETA1 + D;
constexpr int VECTOR_RESIDUAL_FACTS = VECTORS_LEN;  // (2), of a prepared block (gemm/row_facts_sm90a.cuh)

// Where vectors[index] lies in the weights. b_attn, gamma2 and beta2 are neighbours on both sides, and so are gamma1 and beta1.
__device__ __forceinline__ int vector_source(int index) {
  return index < VECTOR_B_ATTN   ? B_QKV + index - VECTOR_B_QKV
         : index < VECTOR_B_FC   ? B_ATTN + index - VECTOR_B_ATTN
         : index < VECTOR_B_PROJ ? B_FC + index - VECTOR_B_FC
         : index < VECTOR_GAMMA1 ? B_PROJ + index - VECTOR_B_PROJ
                                 : GAMMA1 + index - VECTOR_GAMMA1;
}
