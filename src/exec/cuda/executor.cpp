#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "exec/agreement.hpp"
#include "exec/board.hpp"
#include "exec/cuda/brought.hpp"
#include "exec/cuda/collectives.hpp"
#include "exec/cuda/device_table.hpp"
#include "exec/cuda/failure.hpp"
#include "exec/cuda/fit.hpp"
#include "exec/cuda/kernel.hpp"
#include "exec/cuda/residency.hpp"
#include "exec/cuda/stream_lane.hpp"
#include "exec/cuda/table.hpp"
#include "runtime/cuda/graph.hpp"
#include "runtime/cuda/memory.hpp"
#include "tileway/error.hpp"
#include "tileway/executor.hpp"

namespace tileway {

using Clock = std::chrono::steady_clock;
using cuda::Address;
using cuda::check;
using cuda::driver;

namespace {

constexpr int kNotReady = 600;  // CUDA_ERROR_NOT_READY
constexpr int kWarmUps = 3;
constexpr u32 kRaised = 1;  // where the device finds it when the copy is made

}  // namespace

class CudaExecutor::State {
 public:
  State(Group group, std::shared_ptr<const ProvenPlan> proven, Options options, cuda::Brought brought)
      : group_(std::move(group)),
        proven_(agreed(std::move(proven))),
        plan_(proven_->plan()),
        options_(std::move(options)),
        brought_(std::move(brought)),
        layout_(plan_, cuda::buffers_of(brought_)),
        gpu_(cuda::choose_gpu(group_, options_.device)),
        device_(gpu_.ordinal),
        text_(plan_, cuda::architecture_of(gpu_), brought_),
        kernel_(text_, gpu_),
        symmetric_(fitted(), device_, layout_.symmetric_bytes,
                   plan_.reaches_peers() ? Seen::by_all : Seen::by_nobody_else),
        private_(layout_.private_bytes[group_.rank()]),
        failure_(sizeof(Failure)) {
    addresses_.emplace(cuda::Addresses{plan_, layout_, {}, private_.address(), {}});
    for (int rank = 0; rank < group_.size(); ++rank) addresses_->symmetric.push_back(symmetric_.on(rank));
    for (const auto& [id, address] : brought_) bring(id, address);
    if (!plan_.reaches_peers() && group_.size() > 1) board_.emplace(group_, layout_.board_bytes);
    addresses_->board = board_ ? board_->address() : symmetric_.on(group_.rank());
    check(driver()->StreamCreate(&stream_, 1), "making a stream");
    check(driver()->StreamCreate(&alarm_, 1), "making a stream");
    check(driver()->EventCreate(&begin_, 2), "making an event");
    check(driver()->EventCreate(&end_, 2), "making an event");
    check(driver()->MemsetD8(symmetric_.on(group_.rank()), 0, symmetric_.bytes()), "clearing signals");
    clear_board();
    fill_constants();
    if (std::any_of(plan_.lanes.begin(), plan_.lanes.end(),
                    [](const Lane& lane) { return lane.engine == Engine::collective; }))
      collectives_ = cuda::Collectives(group_, plan_);
    write_table();
    // Nobody's signals are touched by that, and what it writes is not read before the first run has written it.
    for (cuda::StreamLane& lane : stream_lanes_) lane.rehearse();
    rehearse_collectives();
    // Not the context: ranks that share it may be waiting for this one.
    check(driver()->StreamSynchronize(nullptr), "preparing memory");
    group_.barrier("signals are clear");
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  ~State() {
    // Freeing memory waits for the whole device: not before other ranks on it have what they need of each other.
    try {
      if (!failed_) group_.barrier("an executor ends");
    } catch (const Error&) {
      failed_ = true;  // a rank is lost: whoever waits for it gives up
    }
    device_.use();
    cuda::Residency::on(gpu_.ordinal).forget(this);
    end_collectives();
    if (stream_ != nullptr) driver()->StreamSynchronize(stream_);
    if (begin_ != nullptr) driver()->EventDestroy(begin_);
    if (end_ != nullptr) driver()->EventDestroy(end_);
    if (stream_ != nullptr) driver()->StreamDestroy(stream_);
    if (alarm_ != nullptr) driver()->StreamDestroy(alarm_);
  }

  // Of the buffer's slot in run `epoch`, as the caller knows it.
  Address address(BufferId id, std::uint32_t epoch) const {
    if (const auto found = brought_.find(id); found != brought_.end()) return found->second;
    const Buffer& buffer = plan_.buffers[id];
    return addresses_->buffer(id) + epoch % buffer.slots * PlanLayout::slot_bytes(buffer);
  }

  void enqueue(Stream stream);
  void synchronize(Stream stream);
  void run() {
    group_.check_members();
    enqueue(stream_);
    synchronize(stream_);
    if (options_.trace) read_trace();
  }
  std::vector<double> time_runs(int count);
  Plan plan_on_device() const;
  void bind(BufferId id, Address address);

  Group group_;
  std::shared_ptr<const ProvenPlan> proven_;
  const Plan& plan_;
  Options options_;
  cuda::Brought brought_;
  PlanLayout layout_;
  cuda::Gpu gpu_;
  cuda::Device device_;
  std::uint32_t runs_started_ = 0;
  cuda::Fit fit_{};
  std::vector<TraceEvent> trace_;

 private:
  using Seen = cuda::SymmetricMemory::Seen;

  std::shared_ptr<const ProvenPlan> agreed(std::shared_ptr<const ProvenPlan> proven) {
    agree(group_, *proven);
    return proven;
  }
  Group& fitted() {
    fit_ = cuda::require_fit(group_, plan_, gpu_, blocks(), kernel_.resident_blocks());
    return group_;
  }
  // A block for every compute lane, and enough to serve the other lanes.
  int blocks() const {
    int compute = 0;
    int streams = 0;
    for (const Lane& lane : plan_.lanes) {
      if (lane.rank == group_.rank()) ++(lane.engine == Engine::compute ? compute : streams);
    }
    return std::max({compute, streams, 1});
  }

  void clear_board();
  void fill_constants();
  // Has tasks use the caller's memory, or runs copy from there and to there what peers use too.
  void bring(BufferId id, Address address);
  void write_table();
  void make_stream_lanes();
  // Collective: communicator by communicator, in the order in which they were made.
  void rehearse_collectives();
  void read_trace();
  // Ends what is running: nobody waits for a signal, a gate or a peer's call any more.
  void raise_alarm();
  void open_gates();
  // Until the stream has done what is in it. When a member is lost, a kernel gives up beside collectives, or the
  // deadline passes, everything is made to end, and once it has, that is thrown.
  void await(Stream stream, std::optional<Clock::time_point> deadline = {});
  // Throws what the kernel has recorded, if anything; the other ranks are told.
  void check_failure();
  // So that nothing on the device waits for a peer when all is taken down.
  void end_collectives() noexcept;

  cuda::KernelText text_;
  cuda::Kernel kernel_;
  cuda::SymmetricMemory symmetric_;
  std::optional<cuda::SharedHostMemory> board_;  // where ranks do not see each other's memory; else it begins with it
  cuda::DeviceMemory private_;
  cuda::PinnedMemory failure_;
  std::optional<cuda::Addresses> addresses_;
  cuda::Table table_;
  std::optional<cuda::DeviceTable> on_device_;
  cuda::Collectives collectives_;
  std::vector<cuda::StreamLane> stream_lanes_;
  Stream stream_ = nullptr;
  Stream alarm_ = nullptr;  // what must reach the device while it waits
  cuda::Event begin_ = nullptr;
  cuda::Event end_ = nullptr;  // of a run in a stream of the caller's
  bool failed_ = false;
};

// No run has begun, and no lane waits.
void CudaExecutor::State::clear_board() {
  std::vector<std::byte> image(layout_.board_bytes);
  std::byte* const own = board_ ? board_->on(group_.rank()) : image.data();
  const Board board(plan_, layout_, std::vector<std::byte*>(static_cast<std::size_t>(group_.size()), own));
  for (std::size_t l = 0; l < plan_.lanes.size(); ++l) {
    if (plan_.lanes[l].rank == group_.rank()) board.lane(static_cast<std::int32_t>(l)).signal = -1;
  }
  if (!board_) check(driver()->MemcpyHtoD(addresses_->board, image.data(), image.size()), "clearing the board");
}

void CudaExecutor::State::fill_constants() {
  for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
    const Buffer& buffer = plan_.buffers[b];
    if (buffer.rank != group_.rank() || buffer.role != Buffer::Role::constant) continue;
    const Array array = Array::filled(buffer.dtype, buffer.shape, buffer.value);
    if (array.bytes() == 0) continue;
    check(driver()->MemcpyHtoD(addresses_->buffer(static_cast<BufferId>(b)), array.data(), array.bytes()),
          "writing constants");
  }
}

void CudaExecutor::State::write_table() {
  table_ = cuda::make_table(*addresses_, group_.rank(), text_);
  on_device_.emplace(table_, cuda::copies_of(*addresses_),
                     cuda::DeviceTable::Surroundings{.blocks = blocks(),
                                                     .runs_begun = addresses_->board,
                                                     .failure = failure_.address(),
                                                     .patience = group_.deadline(),
                                                     .delay = std::chrono::nanoseconds(options_.delay_ns),
                                                     .trace = options_.trace,
                                                     .most_copies = 2 * (plan_.inputs.size() + plan_.outputs.size())});
  make_stream_lanes();
}

void CudaExecutor::State::make_stream_lanes() {
  stream_lanes_.clear();
  for (const LaneRow& lane : table_.stream_lanes) {
    stream_lanes_.emplace_back(plan_, table_, lane, on_device_->gate(0),
                               collectives_.of_lane(static_cast<std::int32_t>(lane.lane)), fit_.free_multiprocessors);
  }
}

void CudaExecutor::State::bring(BufferId id, Address address) {
  cuda::check_brought(plan_, id, address, gpu_);
  brought_[id] = address;
  addresses_->brought = brought_;
}

void CudaExecutor::State::bind(BufferId id, Address address) {
  const auto multiplies = [](const Lane& lane) { return lane.engine == Engine::library; };
  TW_REQUIRE(std::none_of(plan_.lanes.begin(), plan_.lanes.end(), multiplies), ErrorKind::invalid, .where = plan_.name,
             .what = "cuBLASLt has chosen how it multiplies for the addresses as they were",
             .hint = "Make another executor, with Options::memory");
  device_.use();
  const cuda::Brought before = brought_;
  bring(id, address);
  try {
    table_ = cuda::make_table(*addresses_, group_.rank(), text_);
  } catch (...) {
    brought_ = before;
    addresses_->brought = before;
    throw;
  }
  on_device_->write_places(table_, cuda::copies_of(*addresses_));
  check(driver()->StreamSynchronize(nullptr), "binding memory");
  make_stream_lanes();
}

Plan CudaExecutor::State::plan_on_device() const {
  device_.use();
  const cuda::Table table = on_device_->read(table_);
  const std::size_t map_bytes = table.maps.size() * sizeof(cuda::TensorMap);
  TW_REQUIRE(map_bytes == 0 || std::memcmp(table.maps.data(), table_.maps.data(), map_bytes) == 0, ErrorKind::system,
             .where = "the table of rank " + std::to_string(group_.rank()), .what = "its tensor maps have changed");
  return cuda::read_table(table, *addresses_, group_.rank());
}

// The kernel first: whoever waits for a gate must find the block that opens it on the device.
void CudaExecutor::State::enqueue(Stream stream) {
  TW_REQUIRE(!failed_, ErrorKind::lost, .where = plan_.name, .what = "an earlier run of this executor has failed",
             .hint = "Make a new group and a new executor");
  device_.use();
  ++runs_started_;
  // Ranks that share a GPU run together, and would wait for each other here.
  cuda::Residency& residency = cuda::Residency::on(gpu_.ordinal);
  const bool chained = fit_.ranks == 1 && residency.make_room(this, fit_.blocks, kernel_.resident_blocks(), stream);
  if (!stream_lanes_.empty()) check(driver()->EventRecord(begin_, stream), "beginning a run");
  kernel_.launch(on_device_->launch(), blocks(), stream);
  try {
    for (cuda::StreamLane& lane : stream_lanes_) lane.enqueue(begin_, stream);
  } catch (const Error& error) {  // the kernel waits for streams that will not come
    failed_ = true;
    group_.announce_failure(error);
    raise_alarm();
    throw;
  }
  if (chained) residency.entered({this, fit_.blocks, stream, end_});
}

// Should the kernel never have started, nobody opens the gates; and those of collectives nobody else opens anyway.
void CudaExecutor::State::open_gates() {
  for (const LaneRow& lane : table_.stream_lanes) {
    for (u32 t = lane.first; t < lane.first + lane.tasks; ++t)
      check(driver()->MemcpyHtoDAsync(on_device_->gate(t), &kRaised, sizeof(kRaised), alarm_), "opening gates");
  }
  check(driver()->StreamSynchronize(alarm_), "opening gates");
}

std::vector<double> CudaExecutor::State::time_runs(int count) {
  device_.use();
  const cuda::Driver& cuda = *driver();
  const cuda::CapturedGraph graph(stream_, [&] { enqueue(stream_); });
  std::vector<cuda::Event> events(static_cast<std::size_t>(count) + 1);
  for (cuda::Event& event : events) check(cuda.EventCreate(&event, 0), "making an event");
  group_.barrier("a run is captured");  // ranks that share a GPU have all that they need before one of them launches
  for (int i = 0; i < kWarmUps; ++i) graph.launch();
  check(cuda.EventRecord(events[0], stream_), "timing");
  for (int i = 0; i < count; ++i) {
    graph.launch();
    check(cuda.EventRecord(events[static_cast<std::size_t>(i) + 1], stream_), "timing");
  }
  synchronize(stream_);
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    float milliseconds = 0;
    check(cuda.EventElapsedTime(&milliseconds, events[static_cast<std::size_t>(i)],
                                events[static_cast<std::size_t>(i) + 1]),
          "timing");
    times.push_back(1e3 * static_cast<double>(milliseconds));
  }
  for (cuda::Event event : events) cuda.EventDestroy(event);
  return times;
}

void CudaExecutor::State::raise_alarm() {
  try {
    check(driver()->MemcpyHtoDAsync(on_device_->abort_flag(), &kRaised, sizeof(kRaised), alarm_), "giving up");
    open_gates();
  } catch (...) {
    collectives_.abort();
    throw;
  }
  // Last, for it synchronises with the device. A call that a gate lets through now sends what nobody should use: the
  // others know by now that this rank has failed, and look before they take a result (synchronize).
  collectives_.abort();
}

void CudaExecutor::State::await(Stream stream, std::optional<Clock::time_point> deadline) {
  using namespace std::chrono_literals;
  const auto patience = std::chrono::milliseconds(group_.deadline());
  Clock::time_point look_around = Clock::now() + 1ms;
  std::optional<Clock::time_point> alarm_raised;
  std::exception_ptr lost;
  while (true) {
    const cuda::Result result = driver()->StreamQuery(stream);
    if (result != kNotReady) {
      check(result, "running the plan");
      break;
    }
    if (Clock::now() < look_around) continue;
    look_around = Clock::now() + 2ms;
    std::this_thread::sleep_for(50us);
    if (alarm_raised) {
      TW_REQUIRE(Clock::now() - *alarm_raised < patience + 10s, ErrorKind::system, .where = plan_.name,
                 .what = fmt::format("the GPU of rank {} does not answer", group_.rank()));
      if (!collectives_.empty()) open_gates();  // another run in the stream has gates of its own
      continue;
    }
    try {
      group_.check_members();
      check_failure();  // at once, before what is behind it in the stream changes what there is to see
      TW_REQUIRE(!deadline || Clock::now() < *deadline, ErrorKind::lost, .where = plan_.name,
                 .what = fmt::format("a collective of rank {} has not ended within {} ms", group_.rank(),
                                     group_.deadline().count()));
    } catch (...) {
      failed_ = true;
      lost = std::current_exception();
      alarm_raised = Clock::now();
      raise_alarm();
    }
  }
  if (lost) std::rethrow_exception(lost);
}

void CudaExecutor::State::synchronize(Stream stream) {
  device_.use();
  await(stream);
  check_failure();
  // What a library has brought comes from a rank that had not failed by then, or was announced as failed before.
  if (!collectives_.empty()) {
    failed_ = true;
    group_.check_members();
    failed_ = false;
  }
}

void CudaExecutor::State::rehearse_collectives() {
  for (std::int32_t lane : collectives_.lanes()) {
    for (std::size_t l = 0; l < stream_lanes_.size(); ++l) {
      if (table_.stream_lanes[l].lane != static_cast<u32>(lane)) continue;
      stream_lanes_[l].rehearse_calls();
      await(stream_lanes_[l].stream(), Clock::now() + group_.deadline());
    }
  }
}

void CudaExecutor::State::end_collectives() noexcept {
  if (collectives_.empty() || failed_) return;
  try {
    for (const cuda::StreamLane& lane : stream_lanes_) await(lane.stream());
  } catch (...) {
    failed_ = true;  // the device has come to rest, or never will
  }
}

void CudaExecutor::State::check_failure() {
  const Failure* record = static_cast<const Failure*>(failure_.data());
  if (*static_cast<const volatile u32*>(&record->kind) == Failure::none) return;
  const Failure failure = *record;
  failed_ = true;
  // What every rank's lanes are at, from its memory.
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> parts;
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (board_) {
      parts.push_back(board_->on(rank));
      continue;
    }
    memory.emplace_back(layout_.board_bytes);
    // In a stream of its own: beside collectives the others may stand still.
    check(driver()->MemcpyDtoHAsync(memory.back().data(), symmetric_.on(rank), layout_.board_bytes, alarm_),
          "looking at the ranks' lanes");
    parts.push_back(memory.back().data());
  }
  check(driver()->StreamSynchronize(alarm_), "looking at the ranks' lanes");
  const Board board(plan_, layout_, std::move(parts));
  const Error error = cuda::error_of(failure, plan_, board, board.runs_begun(group_.rank()), group_);
  group_.announce_failure(error);
  throw error;
}

void CudaExecutor::State::read_trace() {
  const std::vector<EventRow> events = on_device_->events(table_.tasks.size());
  const std::int64_t offset = kernel_.clock_offset_ns();
  trace_.clear();
  const auto steady = [&](u64 time) { return static_cast<std::int64_t>(time) + offset; };
  for (std::size_t t = 0; t < events.size(); ++t) {
    trace_.push_back({static_cast<TaskId>(table_.tasks[t].task), steady(events[t].wait_begin), steady(events[t].begin),
                      steady(events[t].end)});
  }
}

CudaExecutor::CudaExecutor(Group& group, ProvenPlan plan, Options options) : Executor(group.rank(), std::move(plan)) {
  cuda::Brought brought;
  for (const auto& [name, address] : options.memory) brought.emplace(require_binding(name), address);
  state_ = std::make_unique<State>(group, proven(), std::move(options), std::move(brought));
}
CudaExecutor::CudaExecutor(CudaExecutor&&) noexcept = default;
CudaExecutor& CudaExecutor::operator=(CudaExecutor&&) noexcept = default;
CudaExecutor::~CudaExecutor() = default;

void CudaExecutor::run() { state_->run(); }
void CudaExecutor::enqueue(Stream stream) { state_->enqueue(stream); }
void CudaExecutor::synchronize(Stream stream) { state_->synchronize(stream); }
std::vector<double> CudaExecutor::time_runs(int count) { return state_->time_runs(count); }
const std::vector<TraceEvent>& CudaExecutor::trace() const { return state_->trace_; }

CudaExecutor::Address CudaExecutor::address(const std::string& name) const {
  const BufferId id = require_binding(name);
  TW_REQUIRE(plan().buffers[id].slots == 1, ErrorKind::invalid, .where = plan().name,
             .what = "'" + name + "' changes its place from run to run");
  return state_->address(id, 0);
}

void CudaExecutor::bind(const std::string& name, Address address) { state_->bind(require_binding(name), address); }

std::uint64_t CudaExecutor::fingerprint_on_device() const { return tileway::fingerprint(state_->plan_on_device()); }

void CudaExecutor::write(BufferId buffer, std::span<const std::byte> bytes) {
  state_->device_.use();
  check(driver()->MemcpyHtoD(state_->address(buffer, state_->runs_started_), bytes.data(), bytes.size()),
        "writing an input");
  // It may still be on its way from where the driver has put it meanwhile, and runs do not wait for the null stream.
  check(driver()->StreamSynchronize(nullptr), "writing an input");
}

void CudaExecutor::read(BufferId buffer, std::span<std::byte> bytes) const {
  state_->device_.use();
  const std::uint32_t runs = state_->runs_started_;
  check(driver()->MemcpyDtoH(bytes.data(), state_->address(buffer, runs > 0 ? runs - 1 : 0), bytes.size()),
        "reading an output");
}

}  // namespace tileway
