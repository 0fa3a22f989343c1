/* Which blocks compute. In precision exact all of the grid, because it is launched cooperatively or alone. Behind a fast chain,
   with usually nothing to do, that would cost 2.1 to 2.9 us (H200), because such a grid starts only when every SM is free. So
   there it is a plain launch, on fewer blocks: some of them may never come while kernels of other streams, in the same
   situation, hold their SMs. They wait a while; then those that have come are the crew, and who comes later leaves. Nobody of
   the crew waits for anybody outside of it. */
#pragma once

#include "common/sync_sm90a.cuh"
#include "exact/exact_memory_sm90a.cuh"

namespace exact90 {

// Behind the word of the grid barrier; all 0 between launches.
struct Gathering {
  unsigned arrived;  // blocks so far, and CLOSED
  unsigned size;     // of the crew, once it is closed
  unsigned gone;     // blocks that need none of this any more
};
constexpr size_t AT_GATHERING = 64;
constexpr unsigned CLOSED = 0x80000000u;
constexpr int PATIENCE = 1500;  // looks of about 0.7 us: a kernel that just happens to be there should be gone by then

// PTX ISA 9.0, 9.7.13.5 atom
__device__ __forceinline__ unsigned or_ordered(unsigned* to, unsigned v) {
  unsigned old;
  asm volatile("atom.or.acq_rel.gpu.global.b32 %0, [%1], %2;" : "=r"(old) : "l"(to), "r"(v) : "memory");
  return old;
}
__device__ __forceinline__ unsigned xor_ordered(unsigned* to, unsigned v) {
  unsigned old;
  asm volatile("atom.xor.acq_rel.gpu.global.b32 %0, [%1], %2;" : "=r"(old) : "l"(to), "r"(v) : "memory");
  return old;
}

// By one thread of each block that has found the alarms raised. The last block to have read all of this and the alarms
// clears them for the next launch; a crew of size 0 means that this block leaves.
__device__ __forceinline__ Crew gather(const ExactArgs& args) {
  Gathering* at = reinterpret_cast<Gathering*>(args.memory + AT_GATHERING);
  const unsigned blocks = gridDim.x, came = add_ordered(&at->arrived, 1);
  Crew crew{static_cast<int>(came), 0};
  if (!(came & CLOSED)) {
    const auto close = [&] {
      const unsigned present = or_ordered(&at->arrived, CLOSED);
      if (!(present & CLOSED)) add_ordered(&at->size, present);
    };
    if (came + 1 == blocks) close();
    for (int looks = 0; (crew.size = static_cast<int>(load_acquire(&at->size))) == 0; looks++)
      if (looks == PATIENCE) close();
  }
  if (add_ordered(&at->gone, 1) + 1 == blocks) {
    *at = Gathering{0, 0, 0};
    if (!args.keep_alarms)
      for (int i = 0; i < ALARMS; i++) args.alarms[i] = 0;
  }
  return crew;
}

}  // namespace exact90
