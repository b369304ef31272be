#include "exec/cuda/stream_lane.hpp"

#include <cstddef>
#include <utility>

#include "exec/cuda/copy_engine.hpp"
#include "plan/check.hpp"
#include "tileway/error.hpp"

namespace tileway::cuda {

StreamLane::StreamLane(const Plan& plan, const Table& table, const LaneRow& lane, Address gates) {
  constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
  constexpr unsigned kNoTiming = 2;     // CU_EVENT_DISABLE_TIMING
  for (u32 i = 0; i < lane.tasks; ++i) {
    const TaskRow& row = table.tasks[lane.first + i];
    const Task& task = plan.tasks[row.task];
    const Body& body = plan.bodies[task.body];
    Step step{gates + (lane.first + i) * sizeof(StreamGate), {}};
    TW_REQUIRE(body.kind == Body::Kind::copy || body.kind == Body::Kind::none, ErrorKind::invalid,
               .where = task_name(plan, static_cast<TaskId>(row.task)), .what = "a stream cannot do this",
               .expected = "a copy", .got = std::string(name_of(body.kind)));
    if (body.kind == Body::Kind::copy) {
      const Buffer& buffer = plan.buffers[task.writes[0].buffer];
      TW_REQUIRE(plan.buffers[task.reads[0].buffer].slots == 1 && buffer.slots == 1, ErrorKind::invalid,
                 .where = task_name(plan, static_cast<TaskId>(row.task)),
                 .what = "a captured copy cannot go from slot to slot");
      step.copies = copies_of(table.views[row.views], table.views[row.views + 1], size_of(buffer.dtype));
    }
    steps_.push_back(std::move(step));
  }
  check(driver()->StreamCreate(&stream_, kNonBlocking), "making a stream");
  check(driver()->EventCreate(&end_, kNoTiming), "making an event");
}

StreamLane::StreamLane(StreamLane&& other) noexcept
    : steps_(std::move(other.steps_)),
      stream_(std::exchange(other.stream_, nullptr)),
      end_(std::exchange(other.end_, nullptr)) {}

StreamLane::~StreamLane() {
  if (end_ != nullptr) driver()->EventDestroy(end_);
  if (stream_ != nullptr) driver()->StreamDestroy(stream_);
}

void StreamLane::copy(const Copy2D& copy) const {
  if (copy.height == 1) {
    check(driver()->MemcpyAsync(copy.to, copy.from, copy.width, stream_), "copying");
  } else {
    check(driver()->Memcpy2DAsync(&copy, stream_), "copying");
  }
}

void StreamLane::rehearse() const {
  for (const Step& step : steps_) {
    for (const Copy2D& one : step.copies) copy(one);
  }
  check(driver()->StreamSynchronize(stream_), "rehearsing copies");
}

// Closing a gate, saying that its task is done, and waiting for the next gate is one operation of the stream.
void StreamLane::enqueue(Event begin, Stream after) {
  constexpr unsigned kUntilEqual = 1;  // CU_STREAM_WAIT_VALUE_EQ
  constexpr std::size_t kMostOperations = 64;
  const Driver& cuda = *driver();
  check(cuda.StreamWaitEvent(stream_, begin, 0), "joining a copy lane");
  std::vector<StreamOperation> operations;
  const auto flush = [&] {
    check(cuda.StreamBatchMemOp(stream_, static_cast<unsigned>(operations.size()), operations.data(), 0),
          "waiting for a gate");
    operations.clear();
  };
  for (const Step& step : steps_) {
    operations.push_back({.operation = StreamOperation::wait, .address = step.gate, .value = 1, .flags = kUntilEqual});
    if (!step.copies.empty() || operations.size() >= kMostOperations) flush();
    for (const Copy2D& one : step.copies) copy(one);
    const Address done = step.gate + offsetof(StreamGate, done);
    operations.push_back({.operation = StreamOperation::write, .address = step.gate, .value = 0});
    operations.push_back({.operation = StreamOperation::write, .address = done, .value = 1});
  }
  if (!operations.empty()) flush();
  check(cuda.EventRecord(end_, stream_), "ending a copy lane");
  check(cuda.StreamWaitEvent(after, end_, 0), "waiting for a copy lane");
}

}  // namespace tileway::cuda
