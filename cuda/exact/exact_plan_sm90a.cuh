/* How the work of a call is cut, and which blocks have something else to do meanwhile. Found anew by each role where it is needed. */
#pragma once

#include "exact/exact_gemm_sm90a.cuh"
#include "exact/exact_split_sm90a.cuh"

namespace exact90 {

__device__ __forceinline__ int columns_of(int matrix) { return matrix == MATRIX_QKV ? QKV : matrix == MATRIX_FC ? FFN : D; }
__device__ __forceinline__ Cut cut_of(const ExactArgs& args, int matrix) {
  const int sms = args.sms, most_narrow = matrix == MATRIX_PROJ ? sms / 2 : 2 * sms;
  return Cut::of(padded_rows(args), columns_of(matrix), sms, most_narrow, matrix == MATRIX_PROJ ? 16 : matrix == MATRIX_ATTN ? 4 : 1);
}
template <int MATRIX>
__device__ __forceinline__ Cut cut_of(const ExactArgs& args) {
  return cut_of(args, MATRIX);
}

/* The slabs of weights. Those of W_qkv must be split before QKV. Blocks that are idle in QKV's last round (of 20 us in wide tiles, 9
   in narrow ones) split others meanwhile, at 3.5 us each. */
struct Slabs {
  int early;          // before QKV, by all blocks
  int first, others;  // blocks that split the rest: from the first one on

  __device__ __forceinline__ explicit Slabs(const ExactArgs& args) {
    const bool wide = cut_of<MATRIX_QKV>(args).wide();
    first = padded_rows(args) / ROW_TILE * (wide ? QKV / WIDEST : QKV / 64) % crew.size;
    others = first == 0 ? 0 : crew.size - first;
    // With few rows whole rounds before QKV; else as few before it as there is time for the others beside it.
    const int rounds = min(SLABS, (SLABS_QKV + crew.size - 1) / crew.size * crew.size);
    early = args.rows <= ROW_TILE && others >= 24 ? rounds : max(SLABS_QKV, SLABS - (wide ? 5 : 3) * others);
  }
};

}  // namespace exact90
