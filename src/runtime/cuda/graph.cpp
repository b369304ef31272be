#include "runtime/cuda/graph.hpp"

namespace tileway::cuda {

CapturedGraph::CapturedGraph(Stream stream, const std::function<void()>& put) : stream_(stream) {
  constexpr int kRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED: other threads may be other ranks
  const Driver& cuda = *driver();
  check(cuda.StreamBeginCapture(stream, kRelaxed), "capturing");
  Graph graph = nullptr;
  try {
    put();
  } catch (...) {
    cuda.StreamEndCapture(stream, &graph);
    if (graph != nullptr) cuda.GraphDestroy(graph);
    throw;
  }
  check(cuda.StreamEndCapture(stream, &graph), "capturing");
  const Result made = cuda.GraphInstantiate(&executable_, graph, 0);
  cuda.GraphDestroy(graph);
  check(made, "making a graph");
  Result there = cuda.GraphUpload(executable_, stream);
  if (there == 0) there = cuda.StreamSynchronize(stream);
  if (there != 0) cuda.GraphExecDestroy(executable_);
  check(there, "bringing a graph to the GPU");
}

CapturedGraph::~CapturedGraph() { driver()->GraphExecDestroy(executable_); }

void CapturedGraph::launch() const { check(driver()->GraphLaunch(executable_, stream_), "launching a graph"); }

}  // namespace tileway::cuda
