/* The honest block of the host candidates: mutant 0, the one without a mistake. Hidden, so a candidate exports `solve`
 * and nothing of this. */
#include "../../mutants/block.h"

__attribute__((visibility("hidden"))) void honest_block(const float* x, float* output, const float* weights,
                                                        int seq_len) {
  block_forward(x, output, weights, seq_len);
}
