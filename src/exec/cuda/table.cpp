#include "exec/cuda/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "exec/cuda/tensor_places.hpp"
#include "plan/check.hpp"
#include "tileway/error.hpp"

namespace tileway::cuda {
namespace {

Access access_of(const Addresses& addresses, const View& view) {
  const Buffer& buffer = addresses.plan.buffers.at(view.buffer);
  Access access{.buffer = static_cast<BufferId>(view.buffer),
                .box = {},
                .mode = static_cast<Access::Mode>(view.mode),
                .stage = static_cast<Stage>(view.stage),
                .op = static_cast<ReduceOp>(view.op),
                .partition = view.partition,
                .slice = view.slice};
  auto offset = static_cast<std::int64_t>((view.data - addresses.buffer(access.buffer)) / size_of(buffer.dtype));
  for (u32 d = 0; d < view.dims; ++d) {
    const std::int64_t start = view.stride[d] > 0 ? offset / view.stride[d] : 0;
    offset -= start * view.stride[d];
    access.box.start.push_back(start);
    access.box.extent.push_back(view.extent[d]);
  }
  return access;
}

static_assert(kMaxSteps == kMostSteps);

u32 size_of_list(const auto& list) { return static_cast<u32>(list.size()); }

// Seven bits of function, one of casts, four of dtype; then six for each operand, counted from Step::kNone.
u32 step_row(const Step& step) {
  u32 row = static_cast<u32>(step.function) | static_cast<u32>(step.cast) << 7 | static_cast<u32>(step.dtype) << 8;
  for (std::size_t i = 0; i < step.operands.size(); ++i)
    row |= static_cast<u32>(step.operands[i] - Step::kNone) << (12 + 6 * i);
  return row;
}

Step step_of(u32 row) {
  Step step{.cast = (row >> 7 & 1) != 0,
            .function = static_cast<tileway::Function>(row & 127),
            .dtype = static_cast<DType>(row >> 8 & 15)};
  for (std::size_t i = 0; i < step.operands.size(); ++i)
    step.operands[i] = static_cast<std::int32_t>(row >> (12 + 6 * i) & 63) + Step::kNone;
  return step;
}

BodyRow body_row(const Body& body) {
  BodyRow row{};
  row.value = body.value;
  std::copy(body.dims.begin(), body.dims.end(), row.dims);
  row.first = body.first;
  row.rows = body.rows;
  row.function = static_cast<u32>(body.function);
  row.op = static_cast<u32>(body.op);
  row.dim = body.dim;
  row.from = body.from;
  row.to = body.to;
  row.kind = static_cast<u32>(body.kind);
  row.tf32 = body.tf32;
  row.steps = size_of_list(body.epilogue);
  for (u32 i = 0; i < row.steps; ++i) row.step[i] = step_row(body.epilogue[i]);
  return row;
}

}  // namespace

Table make_table(const Addresses& addresses, int rank, const KernelText& text) {
  const Plan& plan = addresses.plan;
  Table table;
  for (const Body& body : plan.bodies) table.bodies.push_back(body_row(body));
  std::vector<bool> at_system(plan.signals.size());
  for (const Task& task : plan.tasks) {
    for (const Notify& notify : task.notifies) {
      if (notify.scope == Notify::Scope::system) at_system[notify.signal] = true;
    }
  }
  // Tasks share maps.
  std::map<std::pair<BufferId, std::vector<std::int64_t>>, u32> maps;
  const auto use_map = [&](View& view, const Access& access, const TensorPlace& place) {
    std::vector<std::int64_t> what{place.lines};
    if (!place.whole) {
      what.insert(what.end(), access.box.start.begin(), access.box.start.end());
      what.insert(what.end(), access.box.extent.begin(), access.box.extent.end());
    }
    const auto [found, added] = maps.try_emplace({access.buffer, std::move(what)}, size_of_list(table.maps));
    if (added) table.maps.push_back(tensor_map(place.box, place.lines));
    view.map = found->second;
    view.x = place.x;
    view.y = place.y;
  };
  for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
    const Lane& lane = plan.lanes[l];
    if (lane.rank != rank) continue;
    const bool computes = lane.engine == Engine::compute;
    (computes ? table.lanes : table.stream_lanes)
        .push_back({addresses.board + addresses.layout.place_offset[l], static_cast<u32>(l), size_of_list(table.tasks),
                    size_of_list(lane.tasks), 0});
    for (TaskId id : lane.tasks) {
      const Task& task = plan.tasks[id];
      TW_REQUIRE(!computes || task.reads.size() + task.writes.size() <= kMaxViews, ErrorKind::invalid,
                 .where = task_name(plan, id), .what = "too many arguments for a kernel",
                 .expected = fmt::format("at most {}", kMaxViews),
                 .got = std::to_string(task.reads.size() + task.writes.size()));
      table.tasks.push_back({.task = static_cast<u32>(id),
                             .variant = computes ? text.number(variant_of(plan, task)) : 0,
                             .body = static_cast<u32>(task.body),
                             .reads = size_of_list(task.reads),
                             .writes = size_of_list(task.writes),
                             .views = size_of_list(table.views),
                             .waits = size_of_list(task.waits),
                             .first_wait = size_of_list(table.waits),
                             .notifies = size_of_list(task.notifies),
                             .first_notify = size_of_list(table.notifies),
                             .after_previous = task.after_previous,
                             .joint = task.joint,
                             .loaded_ahead = 0,
                             .unused = 0});
      const std::size_t first_view = table.views.size();
      for (const auto* list : {&task.reads, &task.writes}) {
        for (const Access& access : *list) {
          TW_REQUIRE(access.mode != Access::Mode::accumulate, ErrorKind::invalid, .where = task_name(plan, id),
                     .what = "GPUs do not accumulate", .hint = "The explorer runs such plans");
          TW_REQUIRE(access.box.volume() < (std::int64_t{1} << 31), ErrorKind::invalid, .where = task_name(plan, id),
                     .what = "a tile of 2^31 elements or more", .got = to_string(access.box),
                     .hint = "Give the schedule smaller tiles");
          table.views.push_back(addresses.view(access));
        }
      }
      if (computes && text.loads_ahead(variant_of(plan, task))) {
        const std::optional<LoadableOperands> operands = loadable(addresses, task);
        TW_REQUIRE(operands.has_value(), ErrorKind::invalid, .where = task_name(plan, id),
                   .what = "TMA cannot load its operands from where the caller has them",
                   .expected = "addresses that are multiples of 16",
                   .hint = "Make the executor with Options::memory: its kernel then does without TMA");
        table.tasks.back().loaded_ahead = 1;
        table.most_maps += 3;
        use_map(table.views[first_view], task.reads[0], operands->a);
        use_map(table.views[first_view + 1], task.reads[1], operands->b);
        if (const std::optional<TensorPlace> result = storable(addresses, task))
          use_map(table.views[first_view + task.reads.size()], task.writes[0], *result);
      }
      for (const Wait& wait : task.waits) {
        table.waits.push_back({addresses.signal(wait.signal), plan.signals[wait.signal].total, wait.value,
                               static_cast<u32>(wait.stage), at_system[wait.signal], static_cast<u32>(wait.signal), 0});
      }
      for (const Notify& notify : task.notifies) {
        const SignalInfo::Kind kind = plan.signals[notify.signal].kind;
        TW_REQUIRE(kind != SignalInfo::Kind::packet, ErrorKind::invalid, .where = task_name(plan, id),
                   .what = "GPUs send no packets yet", .hint = "The explorer runs such plans");
        // Gates count, as the proof has it: none of this executor's engines waits for a plan's gate by itself.
        table.notifies.push_back({addresses.signal(notify.signal), notify.amount,
                                  kind == SignalInfo::Kind::set ? NotifyRow::set : NotifyRow::add,
                                  notify.scope == Notify::Scope::system, static_cast<u32>(notify.after),
                                  static_cast<u32>(notify.signal), 0});
      }
    }
  }
  return table;
}

Plan read_table(const Table& table, const Addresses& addresses, int rank) {
  Plan plan = addresses.plan;
  const auto require = [&](bool holds, const char* what) {
    TW_REQUIRE(holds, ErrorKind::system, .where = "the table of rank " + std::to_string(rank), .what = what);
  };
  require(table.bodies.size() == plan.bodies.size(), "another number of bodies");
  for (std::size_t b = 0; b < plan.bodies.size(); ++b) {
    const BodyRow& row = table.bodies[b];
    Body& body = plan.bodies[b];
    const std::size_t dims = body.dims.size();
    body = {.kind = static_cast<Body::Kind>(row.kind),
            .function = static_cast<tileway::Function>(row.function),
            .op = static_cast<ReduceOp>(row.op),
            .value = row.value,
            .dim = row.dim,
            .dims = {},
            .first = row.first,
            .rows = row.rows,
            .from = row.from,
            .to = row.to,
            .tf32 = row.tf32 != 0,
            .epilogue = {}};
    require(row.steps <= kMaxSteps, "an epilogue of too many steps");
    for (u32 i = 0; i < row.steps; ++i) body.epilogue.push_back(step_of(row.step[i]));
    for (std::size_t d = 0; d < dims; ++d) body.dims.push_back(row.dims[d]);
  }
  for (const auto* lanes : {&table.lanes, &table.stream_lanes}) {
    for (const LaneRow& lane_row : *lanes) {
      require(lane_row.lane < plan.lanes.size() && plan.lanes[lane_row.lane].rank == rank, "a lane of another rank");
      Lane& lane = plan.lanes[lane_row.lane];
      lane.tasks.clear();
      for (u32 i = 0; i < lane_row.tasks; ++i) {
        const TaskRow& row = table.tasks.at(lane_row.first + i);
        require(row.task < plan.tasks.size(), "an unknown task");
        Task& task = plan.tasks[row.task];
        const Task before = task;
        task = {.rank = rank,
                .lane = static_cast<std::int32_t>(lane_row.lane),
                .index = static_cast<std::int32_t>(i),
                .body = static_cast<BodyId>(row.body),
                .joint = row.joint,
                .after_previous = row.after_previous != 0,
                .origin = before.origin,
                .waits = {},
                .reads = {},
                .writes = {},
                .notifies = {}};
        lane.tasks.push_back(static_cast<TaskId>(row.task));
        for (u32 v = 0; v < row.reads + row.writes; ++v) {
          Access access = access_of(addresses, table.views.at(row.views + v));
          // Of an empty box the address does not tell where it starts.
          const std::vector<Access>& old = v < row.reads ? before.reads : before.writes;
          const std::size_t at = v < row.reads ? v : v - row.reads;
          if (access.box.empty() && at < old.size()) access.box.start = old[at].box.start;
          View same = addresses.view(access);
          const View& its = table.views[row.views + v];
          same.map = its.map;
          same.x = its.x;
          same.y = its.y;
          require(std::memcmp(&same, &its, sizeof(View)) == 0, "a view of other rows");
          (v < row.reads ? task.reads : task.writes).push_back(access);
        }
        for (u32 w = 0; w < row.waits; ++w) {
          const WaitRow& wait = table.waits.at(row.first_wait + w);
          require(wait.id < plan.signals.size() && wait.signal == addresses.signal(static_cast<SignalId>(wait.id)) &&
                      wait.total == plan.signals[wait.id].total,
                  "a wait for another signal than it says");
          task.waits.push_back({static_cast<SignalId>(wait.id), wait.value, static_cast<Stage>(wait.stage)});
        }
        for (u32 n = 0; n < row.notifies; ++n) {
          const NotifyRow& notify = table.notifies.at(row.first_notify + n);
          require(
              notify.id < plan.signals.size() && notify.signal == addresses.signal(static_cast<SignalId>(notify.id)),
              "a notification of another signal than it says");
          task.notifies.push_back({static_cast<SignalId>(notify.id), notify.amount,
                                   notify.system != 0 ? Notify::Scope::system : Notify::Scope::device,
                                   static_cast<Notify::After>(notify.after)});
        }
      }
    }
  }
  return plan;
}

}  // namespace tileway::cuda
