// Work of a stream as a graph, which is launched again and again.
#pragma once

#include <functional>

#include "runtime/cuda/driver.hpp"

namespace tileway::cuda {

class CapturedGraph {
 public:
  // Of what `put` puts in the stream, which it does not run. Other threads may use the driver meanwhile. Making a graph
  // may wait for all that runs in the context: ranks that share one meet before the first of them launches.
  CapturedGraph(Stream stream, const std::function<void()>& put);
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  ~CapturedGraph();
  // Into the stream that it was captured in. Allocates nothing, the first time too.
  void launch() const;

 private:
  Stream stream_;
  GraphExecutable executable_ = nullptr;
};

}  // namespace tileway::cuda
