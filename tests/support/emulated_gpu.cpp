#include "support/emulated_gpu.hpp"

#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include "exec/cuda/brought.hpp"
#include "exec/cuda/table.hpp"
#include "exec/host/kernels/kernels.hpp"
#include "runtime/signal.hpp"
#include "support/device_bodies.hpp"
#include "tileway/error.hpp"

namespace tileway::testing {
namespace {

using cuda::Address;

Address address_of(const std::vector<std::byte>& memory) {
  const auto address = reinterpret_cast<Address>(memory.data());
  return (address + PlanLayout::kAlignment - 1) / PlanLayout::kAlignment * PlanLayout::kAlignment;
}

class EmulatedGpu final : public Executor {
 public:
  EmulatedGpu(Group& group, const ProvenPlan& plan, int behind, DeviceBodiesRun& counts)
      : Executor(group.rank(), plan),
        counts_(counts),
        brought_(bring(behind)),
        layout_(this->plan(), cuda::buffers_of(brought_)),
        symmetric_(group.allocate(layout_.symmetric_bytes)),
        private_(layout_.private_bytes[static_cast<std::size_t>(rank())] + PlanLayout::kAlignment),
        addresses_{this->plan(), layout_, {}, address_of(private_), brought_},
        text_(this->plan(), "sm_100a", brought_) {
    for (int r = 0; r < group.size(); ++r)
      addresses_.symmetric.push_back(reinterpret_cast<Address>(symmetric_.on(r).data()));
    addresses_.board = addresses_.symmetric[static_cast<std::size_t>(rank())];
    table_ = cuda::make_table(addresses_, rank(), text_);
    for (std::size_t b = 0; b < this->plan().buffers.size(); ++b) {
      const Buffer& buffer = this->plan().buffers[b];
      if (buffer.rank != rank() || buffer.role != Buffer::Role::constant) continue;
      const Array array = Array::filled(buffer.dtype, buffer.shape, buffer.value);
      if (array.bytes() > 0) std::memcpy(memory(static_cast<BufferId>(b), 0), array.data(), array.bytes());
    }
    group.barrier("memory is prepared");
  }

  void run() override {
    const cuda::BroughtCopies copies = cuda::copies_of(addresses_);
    copy_all(copies.in);
    std::vector<LaneRow> lanes = table_.lanes;
    lanes.insert(lanes.end(), table_.stream_lanes.begin(), table_.stream_lanes.end());
    std::vector<u32> done(lanes.size(), 0);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (bool all = false; !all;) {
      all = true;
      for (std::size_t l = 0; l < lanes.size(); ++l) {
        if (done[l] == lanes[l].tasks) continue;
        all = false;
        const TaskRow& row = table_.tasks[lanes[l].first + done[l]];
        if (!may_run(row)) continue;
        run_task(row, l < table_.lanes.size());
        ++done[l];
      }
      TW_REQUIRE(std::chrono::steady_clock::now() < deadline, ErrorKind::lost, .where = plan().name,
                 .what = "a rank waits for ever");
      std::this_thread::yield();
    }
    copy_all(copies.out);
    ++runs_;
  }
  std::vector<double> time_runs(int) override { return {}; }
  const std::vector<TraceEvent>& trace() const override { return trace_; }

 private:
  // Of inputs and outputs; empty for none.
  cuda::Brought bring(int behind) {
    cuda::Brought addresses;
    for (const auto* bindings : {&plan().inputs, &plan().outputs}) {
      for (const Plan::Binding& binding : *bindings) {
        const Buffer& buffer = plan().buffers[binding.buffer];
        if (behind == 0 || binding.rank != rank() || buffer.slots > 1) continue;
        const std::size_t lost = static_cast<std::size_t>(behind) * size_of(buffer.dtype);
        callers_.emplace_back(PlanLayout::slot_bytes(buffer) + lost + PlanLayout::kAlignment);
        addresses[binding.buffer] = address_of(callers_.back()) + lost;
      }
    }
    return addresses;
  }
  std::byte* memory(BufferId id, std::uint32_t epoch) const {
    const Buffer& buffer = plan().buffers[id];
    return reinterpret_cast<std::byte*>(addresses_.buffer(id) + epoch % static_cast<std::uint32_t>(buffer.slots) *
                                                                    PlanLayout::slot_bytes(buffer));
  }

  // As the caller knows it.
  std::byte* callers(BufferId id, std::uint32_t epoch) const {
    const auto found = brought_.find(id);
    return found == brought_.end() ? memory(id, epoch) : reinterpret_cast<std::byte*>(found->second);
  }
  static void copy_all(const std::vector<CopyRow>& rows) {
    for (const CopyRow& row : rows)
      std::memcpy(reinterpret_cast<void*>(row.to), reinterpret_cast<const void*>(row.from), row.bytes);
  }

  bool may_run(const TaskRow& row) const {
    for (u32 w = row.first_wait; w < row.first_wait + row.waits; ++w) {
      const WaitRow& wait = table_.waits[w];
      if (!reached(*reinterpret_cast<const Signal*>(wait.signal), runs_ * wait.total + wait.value)) return false;
    }
    return true;
  }

  void run_task(const TaskRow& row, bool computes) {
    std::vector<View> views(table_.views.begin() + row.views,
                            table_.views.begin() + row.views + row.reads + row.writes);
    for (View& view : views) view.data += runs_ % view.slots * view.slot_bytes;
    Failure failure{};
    u32 abort = 0;
    const std::string variant = computes ? cuda::variant_of(plan(), plan().tasks[row.task]) : std::string();
    if (run_device_body(variant,
                        {&table_.bodies[row.body], views.data(), row.reads, row.writes, row.task, &failure, &abort})) {
      counts_.count(variant);
      TW_REQUIRE(failure.kind == Failure::none, ErrorKind::invalid, .where = variant, .what = "data out of range");
    } else {
      run_on_host(row, views);
    }
    for (u32 n = row.first_notify; n < row.first_notify + row.notifies; ++n) {
      const NotifyRow& notify = table_.notifies[n];
      TW_ASSERT(notify.kind == NotifyRow::add);  // lowering makes no others
      tileway::notify(*reinterpret_cast<Signal*>(notify.signal), notify.amount);
    }
  }

  void run_on_host(const TaskRow& row, const std::vector<View>& views) const {
    std::vector<host::View> boxes;
    for (const View& view : views) {
      host::View box{reinterpret_cast<std::byte*>(view.data), plan().buffers[view.buffer].dtype, {}, {}};
      for (u32 d = 0; d < view.dims; ++d) {
        box.extent.push_back(view.extent[d]);
        box.strides.push_back(view.stride[d]);
      }
      boxes.push_back(box);
    }
    const std::span<const host::View> all(boxes);
    host::run_body({plan().bodies[row.body], all.first(row.reads), all.subspan(row.reads)});
  }

  void write(BufferId buffer, std::span<const std::byte> bytes) override {
    std::memcpy(callers(buffer, runs_), bytes.data(), bytes.size());
  }
  void read(BufferId buffer, std::span<std::byte> bytes) const override {
    std::memcpy(bytes.data(), callers(buffer, runs_ > 0 ? runs_ - 1 : 0), bytes.size());
  }

  DeviceBodiesRun& counts_;
  std::vector<std::vector<std::byte>> callers_;
  cuda::Brought brought_;
  PlanLayout layout_;
  SymmetricMemory symmetric_;
  std::vector<std::byte> private_;
  cuda::Addresses addresses_;
  cuda::KernelText text_;
  cuda::Table table_;
  std::uint32_t runs_ = 0;
  std::vector<TraceEvent> trace_;
};

}  // namespace

void DeviceBodiesRun::count(const std::string& variant) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  ++counts_[variant];
}

MakeExecutor emulated_gpus(int behind, DeviceBodiesRun& counts) {
  return [behind, &counts](Group& group, const ProvenPlan& plan) {
    return std::make_unique<EmulatedGpu>(group, plan, behind, counts);
  };
}

}  // namespace tileway::testing
