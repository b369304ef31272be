#include "exec/cuda/stream_lane.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "exec/cuda/copy_engine.hpp"
#include "exec/cuda/library_engine.hpp"
#include "plan/check.hpp"
#include "plan/joint.hpp"
#include "tileway/error.hpp"

namespace tileway::cuda {
namespace {

bool has_elements(const std::vector<Elements>& list) {
  return std::any_of(list.begin(), list.end(), [](const Elements& elements) { return elements.count > 0; });
}

// Whether an engine has anything to do with a body; all pass by one that only waits and notifies.
bool can_do(Engine engine, Body::Kind body) {
  switch (engine) {
    case Engine::copy:
      return body == Body::Kind::copy || body == Body::Kind::none;
    case Engine::collective:
      return is_joint(body) || body == Body::Kind::none;
    case Engine::library:
      return body == Body::Kind::matmul || body == Body::Kind::none;
    case Engine::compute:
      break;
  }
  return false;
}

}  // namespace

StreamLane::StreamLane(const Plan& plan, const Table& table, const LaneRow& lane, Address gates,
                       Communicator* communicator, int multiprocessors)
    : communicator_(communicator) {
  constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
  constexpr unsigned kNoTiming = 2;     // CU_EVENT_DISABLE_TIMING
  const Engine engine = plan.lanes[lane.lane].engine;
  if (engine == Engine::library) multiplier_ = std::make_unique<Multiplier>(multiprocessors);
  for (u32 i = 0; i < lane.tasks; ++i) {
    const TaskRow& row = table.tasks[lane.first + i];
    const Task& task = plan.tasks[row.task];
    const Body& body = plan.bodies[task.body];
    const std::string where = task_name(plan, static_cast<TaskId>(row.task));
    TW_REQUIRE(can_do(engine, body.kind), ErrorKind::invalid, .where = where,
               .what = fmt::format("a {} lane cannot do this", name_of(engine)),
               .got = std::string(name_of(body.kind)));
    Step step{gates + (lane.first + i) * sizeof(StreamGate), {}, {}, {}};
    const View* views = table.views.data() + row.views;
    std::vector<Elements> elements;  // of the reads, then of the writes
    for (const auto* list : {&task.reads, &task.writes}) {
      for (const Access& access : *list) {
        TW_REQUIRE(plan.buffers[access.buffer].slots == 1, ErrorKind::invalid, .where = where,
                   .what = "a captured stream cannot go from slot to slot");
        elements.push_back({views[elements.size()].data, static_cast<std::size_t>(access.box.volume())});
      }
    }
    const DType dtype = task.writes.empty() ? DType::f32 : plan.buffers[task.writes[0].buffer].dtype;
    if (body.kind == Body::Kind::copy) {
      step.copies = copies_of(views[0], views[1], size_of(dtype));
    } else if (body.kind == Body::Kind::matmul) {
      for (const Products& products : products_of(views[0], views[1], views[2], dtype, body.tf32))
        step.products.push_back(multiplier_->prepare(products, where));
    } else if (is_joint(body.kind) && has_elements(elements)) {
      const auto writes = elements.begin() + static_cast<std::ptrdiff_t>(task.reads.size());
      step.call = {&body, dtype, {elements.begin(), writes}, {writes, elements.end()}};
    }
    steps_.push_back(std::move(step));
  }
  check(driver()->StreamCreate(&stream_, kNonBlocking), "making a stream");
  check(driver()->EventCreate(&end_, kNoTiming), "making an event");
}

StreamLane::StreamLane(StreamLane&& other) noexcept
    : communicator_(other.communicator_),
      multiplier_(std::move(other.multiplier_)),
      steps_(std::move(other.steps_)),
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

void StreamLane::work(const Step& step) const {
  for (const Copy2D& one : step.copies) copy(one);
  for (const std::size_t product : step.products) multiplier_->multiply(product, stream_);
}

void StreamLane::rehearse() const {
  for (const Step& step : steps_) work(step);
  check(driver()->StreamSynchronize(stream_), "rehearsing copies and products");
}

void StreamLane::make(const Call& call) {
  switch (call.body->kind) {
    case Body::Kind::all_reduce:
      return communicator_->all_reduce(call.give[0], call.take[0].address, call.dtype, call.body->op, stream_);
    case Body::Kind::reduce_scatter:
      return communicator_->reduce_scatter(call.give, call.take[0].address, call.dtype, call.body->op, stream_);
    default:
      return communicator_->exchange(call.give, call.take, call.dtype, stream_);
  }
}

void StreamLane::rehearse_calls() {
  for (const Step& step : steps_) {
    if (step.call) make(*step.call);
  }
}

// Closing a gate, saying that its task is done, and waiting for the next gate is one operation of the stream.
void StreamLane::enqueue(Event begin, Stream after) {
  constexpr unsigned kUntilEqual = 1;  // CU_STREAM_WAIT_VALUE_EQ
  constexpr std::size_t kMostOperations = 64;
  const Driver& cuda = *driver();
  check(cuda.StreamWaitEvent(stream_, begin, 0), "joining a stream's lane");
  std::vector<StreamOperation> operations;
  const auto flush = [&] {
    check(cuda.StreamBatchMemOp(stream_, static_cast<unsigned>(operations.size()), operations.data(), 0),
          "waiting for a gate");
    operations.clear();
  };
  for (const Step& step : steps_) {
    operations.push_back({.operation = StreamOperation::wait, .address = step.gate, .value = 1, .flags = kUntilEqual});
    const bool works = !step.copies.empty() || !step.products.empty() || step.call;
    if (works || operations.size() >= kMostOperations) flush();
    work(step);
    if (step.call) make(*step.call);
    const Address done = step.gate + offsetof(StreamGate, done);
    operations.push_back({.operation = StreamOperation::write, .address = step.gate, .value = 0});
    operations.push_back({.operation = StreamOperation::write, .address = done, .value = 1});
  }
  if (!operations.empty()) flush();
  check(cuda.EventRecord(end_, stream_), "ending a stream's lane");
  check(cuda.StreamWaitEvent(after, end_, 0), "waiting for a stream's lane");
}

}  // namespace tileway::cuda
