#include "schedule/order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <queue>
#include <tuple>

#include "tileway/error.hpp"

namespace tileway {
namespace {

// The stations of a rank: one for each engine, and one for the compute lanes that are set aside to move bytes.
constexpr std::size_t kStations = kEngineCount + 1;

std::size_t station_of_lanes(std::int32_t rank, Engine engine, bool movers) {
  return static_cast<std::size_t>(rank) * kStations + (movers ? kEngineCount : static_cast<std::size_t>(engine));
}

// How many compute lanes a lane is worth: a library of matrix products has what the compute lanes of a GPU leave; on
// the host it is a thread.
double lanes_worth(const Topology& topology, Engine engine) {
  if (engine != Engine::library || !topology.has_blocks()) return 1;
  return std::max(1.0, 1.0 * (Topology::gpus(1).lanes - topology.lanes) / topology.library);
}

// What puts one ready task before another.
struct Urgency {
  std::int32_t transfers = 0;  // on the longest path of tasks behind this one, itself included
  std::int32_t call = std::numeric_limits<std::int32_t>::max();      // the first joint that this task feeds
  std::int32_t distance = std::numeric_limits<std::int32_t>::max();  // to the nearest peer whose data this task feeds
  std::int32_t arrival = 0;                                          // from the farthest peer whose data it reads
};

bool sends(const Plan& plan, const Task& task) {
  return std::any_of(task.writes.begin(), task.writes.end(),
                     [&](const Access& write) { return plan.buffers[write.buffer].rank != task.rank; });
}

struct Links {
  std::vector<std::vector<std::int32_t>> joins_of_producer;
  std::vector<std::int32_t> waiting;  // joins that a task still waits for
};

Links links_of(const TaskGraph& graph) {
  Links links;
  links.joins_of_producer.resize(graph.plan.tasks.size());
  links.waiting.resize(graph.plan.tasks.size());
  for (std::size_t j = 0; j < graph.joins.size(); ++j) {
    for (TaskId producer : graph.joins[j].producers)
      links.joins_of_producer[producer].push_back(static_cast<std::int32_t>(j));
    for (TaskId consumer : graph.joins[j].consumers) ++links.waiting[consumer];
  }
  return links;
}

std::vector<Urgency> urgencies(const TaskGraph& graph, const Links& links) {
  const Plan& plan = graph.plan;
  std::vector<Urgency> urgency(plan.tasks.size());
  std::vector<Urgency> of_join(graph.joins.size());
  std::vector<bool> known(graph.joins.size());
  for (auto id = static_cast<TaskId>(plan.tasks.size()) - 1; id >= 0; --id) {
    const Task& task = plan.tasks[id];
    Urgency& own = urgency[id];
    for (std::int32_t j : links.joins_of_producer[id]) {
      const Join& join = graph.joins[j];
      if (!known[j]) {
        known[j] = true;
        for (TaskId consumer : join.consumers) {
          TW_ASSERT(consumer > id);
          of_join[j].transfers = std::max(of_join[j].transfers, urgency[consumer].transfers);
          of_join[j].distance = std::min(of_join[j].distance, urgency[consumer].distance);
          of_join[j].call = std::min(of_join[j].call, urgency[consumer].call);
        }
      }
      own.transfers = std::max(own.transfers, of_join[j].transfers);
      own.call = std::min(own.call, of_join[j].call);
      if (join.rank == task.rank) own.distance = std::min(own.distance, of_join[j].distance);
    }
    // The task that lets peers begin to write here takes no time and waits for nothing.
    if (plan.bodies[task.body].kind == Body::Kind::none && links.waiting[id] == 0)
      own.transfers = std::numeric_limits<std::int32_t>::max();
    // A collective's copy at home is a transfer too: what the rank has itself should be there first.
    if (graph.moving[id] || sends(plan, task)) ++own.transfers;
    if (task.joint != -1) own.call = task.joint;
    // What any member's call is for, all of them wait for. Producers come before the first of them.
    if (task.joint != -1 && id == graph.joints[task.joint].front()) {
      std::int32_t most = 0;
      for (TaskId member : graph.joints[task.joint]) most = std::max(most, urgency[member].transfers);
      for (TaskId member : graph.joints[task.joint]) urgency[member].transfers = most;
    }
    if (!sends(plan, task)) continue;
    own.distance = std::numeric_limits<std::int32_t>::max();
    for (const Access& write : task.writes) {
      const std::int32_t to = plan.buffers[write.buffer].rank;
      if (to != task.rank) own.distance = std::min(own.distance, (to - task.rank + plan.ranks()) % plan.ranks());
    }
  }
  for (std::size_t id = 0; id < plan.tasks.size(); ++id) {
    for (std::int32_t j : links.joins_of_producer[id]) {
      const std::int32_t from = plan.tasks[id].rank;
      const std::int32_t to = graph.joins[j].rank;
      const std::int32_t arrival = from == to ? urgency[id].arrival : (to - from + plan.ranks()) % plan.ranks();
      for (TaskId consumer : graph.joins[j].consumers)
        urgency[consumer].arrival = std::max(urgency[consumer].arrival, arrival);
    }
  }
  return urgency;
}

// The groups of ranks whose collectives a library does. Each is a communicator, with a lane on every member.
struct Communicators {
  std::vector<std::vector<std::int32_t>> ranks;
  std::vector<std::vector<std::int32_t>> lanes;  // as the ranks
  std::vector<std::size_t> of_joint;
};

Communicators communicators_of(const TaskGraph& graph) {
  const Plan& plan = graph.plan;
  Communicators all;
  std::map<std::vector<std::int32_t>, std::size_t> known;
  std::vector<int> needed(plan.ranks(), 0);
  for (const std::vector<TaskId>& members : graph.joints) {
    std::vector<std::int32_t> ranks;
    for (TaskId member : members) ranks.push_back(plan.tasks[member].rank);
    const auto [found, added] = known.try_emplace(ranks, known.size());
    all.of_joint.push_back(found->second);
    if (!added) continue;
    for (std::int32_t rank : ranks) {
      TW_REQUIRE(++needed[rank] <= plan.topology.collective, ErrorKind::invalid,
                 .where = fmt::format("{}, {}", plan.name, plan.origins[plan.tasks[members[0]].origin]),
                 .what = fmt::format("rank {} has no collective lane left: each group of ranks that it calls a "
                                     "collective library with takes one",
                                     rank),
                 .expected = fmt::format("collective={} or more in the topology", needed[rank]),
                 .got = fmt::format("collective={}", plan.topology.collective),
                 .hint = "Leave room for what the library runs on the device: with 132 SMs, 8 lanes fewer for each");
    }
    all.ranks.push_back(std::move(ranks));
    all.lanes.emplace_back();
  }
  return all;
}

// Lanes of one rank that are all alike, and the tasks that could start there. Or a communicator, which takes one joint
// after the other: its first member stands for all.
struct Station {
  std::vector<std::int32_t> free_lanes;  // a stack; lanes that do least come out first at the start
  std::priority_queue<std::pair<std::array<std::int32_t, 6>, TaskId>> ready;
};

struct Event {
  double time;
  std::int32_t kind;  // 0: a task ends; 1: a join is seen
  std::int32_t index;
  friend bool operator>(const Event& a, const Event& b) {
    return std::tie(a.time, a.kind, a.index) > std::tie(b.time, b.kind, b.index);
  }
};

// How long a task takes on its own, in microseconds.
double task_us(const TaskGraph& graph, TaskId id) {
  const Plan& plan = graph.plan;
  const Task& task = plan.tasks[id];
  const Engine engine = graph.engines[id];
  const Body& body = plan.bodies[task.body];
  const Topology& topology = plan.topology;
  const auto bytes_of = [&](const std::vector<Access>& accesses) {
    double bytes = 0;
    for (const Access& access : accesses) {
      bytes +=
          static_cast<double>(access.box.volume()) * static_cast<double>(size_of(plan.buffers[access.buffer].dtype));
    }
    return bytes;
  };
  const double read = bytes_of(task.reads);
  const double written = bytes_of(task.writes);
  const std::int64_t sent = plan.bytes_sent(task);
  const double worth = lanes_worth(topology, engine);
  double us = (read + written) / (worth * topology.lane_gb_s * 1e3);
  if (sent > 0) us = static_cast<double>(sent) / (topology.link_gb_s * 1e3);
  if (body.kind == Body::Kind::exchange) {
    us = std::max(read, written) / (topology.link_gb_s * 1e3) + topology.link_us;
  } else if (task.joint != -1) {  // as bytes_sent counts: as if by a ring of its members, once around it or twice
    const std::size_t steps = (body.kind == Body::Kind::all_reduce ? 2 : 1) * (graph.joints[task.joint].size() - 1);
    us += static_cast<double>(steps) * topology.link_us;
  }
  if (body.kind == Body::Kind::matmul || body.kind == Body::Kind::scaled_matmul) {
    const double k = static_cast<double>(task.reads[0].box.extent.back());
    const double gflops = worth * topology.lane_gflops;
    us = std::max(us * 0.1, 2e-3 * static_cast<double>(task.writes[0].box.volume()) * k / gflops);
  }
  // What a block takes for a task besides, on an H200: until the first operands are there, and for its way out.
  return us + (topology.has_blocks() && engine == Engine::compute ? 3 : 0.5);
}

}  // namespace

std::vector<Lowered::Span> assign_lanes(TaskGraph& graph) {
  Plan& plan = graph.plan;
  Links links = links_of(graph);
  const std::vector<Urgency> urgency = urgencies(graph, links);
  Communicators communicators = communicators_of(graph);
  std::vector<Station> stations(static_cast<std::size_t>(plan.ranks()) * kStations + communicators.ranks.size());
  const std::size_t calls = stations.size() - communicators.ranks.size();  // the first communicator's
  for (std::int32_t rank = 0; rank < plan.ranks(); ++rank) {
    for (const Engine engine : {Engine::compute, Engine::copy, Engine::library}) {
      for (int l = 0; l < plan.topology.lanes_of(engine); ++l) {
        const bool moves = engine == Engine::compute && l < plan.topology.movers;
        stations[station_of_lanes(rank, engine, moves)].free_lanes.push_back(
            static_cast<std::int32_t>(plan.lanes.size()));
        plan.lanes.push_back({rank, engine, {}});
      }
    }
    for (std::size_t c = 0; c < communicators.ranks.size(); ++c) {
      const std::vector<std::int32_t>& ranks = communicators.ranks[c];
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
      communicators.lanes[c].push_back(static_cast<std::int32_t>(plan.lanes.size()));
      plan.lanes.push_back({rank, Engine::collective, {}});
    }
  }
  for (std::size_t c = 0; c < communicators.ranks.size(); ++c)
    stations[calls + c].free_lanes.push_back(communicators.lanes[c].front());
  for (Station& station : stations) std::reverse(station.free_lanes.begin(), station.free_lanes.end());
  const auto station_of = [&](TaskId id) -> Station& {
    const Task& task = plan.tasks[id];
    if (task.joint != -1) return stations[calls + communicators.of_joint[task.joint]];
    const Engine engine = graph.engines[id];
    const bool moves = engine == Engine::compute && graph.moving[id] && plan.topology.movers > 0;
    return stations[station_of_lanes(task.rank, engine, moves)];
  };
  std::vector<std::size_t> members_ready(graph.joints.size(), 0);
  const auto make_ready = [&](TaskId id) {
    const std::int32_t joint = plan.tasks[id].joint;
    if (joint != -1) {
      if (++members_ready[joint] < graph.joints[joint].size()) return;
      id = graph.joints[joint].front();
    }
    // What no transfer waits for goes as the program has it: then short tasks, which add what has come, are left for
    // the end, where lanes have time for them, and wait for nobody. Else what is there already goes on first.
    const Urgency& u = urgency[id];
    const std::int32_t origin = plan.tasks[id].origin;
    station_of(id).ready.push(
        {{u.transfers, u.transfers > 0 ? origin : -origin, -u.call, -u.distance, -u.arrival, -id}, id});
  };

  std::vector<Lowered::Span> spans(plan.tasks.size());
  std::vector<std::int32_t> producers_left(graph.joins.size());
  for (std::size_t j = 0; j < graph.joins.size(); ++j)
    producers_left[j] = static_cast<std::int32_t>(graph.joins[j].producers.size());
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
  std::size_t ended = 0;
  const auto start = [&](TaskId id, std::int32_t lane, double now, double us) {
    Task& task = plan.tasks[id];
    task.lane = lane;
    task.index = static_cast<std::int32_t>(plan.lanes[lane].tasks.size());
    task.after_previous = task.joint != -1 && task.index > 0;  // a library's calls come one after the other
    plan.lanes[lane].tasks.push_back(id);
    spans[id] = {now, now + us};
    events.push({spans[id].end_us, 0, id});
  };
  const auto start_what_can = [&](double now) {
    for (Station& station : stations) {
      while (!station.free_lanes.empty() && !station.ready.empty()) {
        const TaskId id = station.ready.top().second;
        station.ready.pop();
        const std::int32_t lane = station.free_lanes.back();
        station.free_lanes.pop_back();
        const std::int32_t joint = plan.tasks[id].joint;
        if (joint == -1) {
          start(id, lane, now, task_us(graph, id));
          continue;
        }
        double longest = 0;
        for (TaskId member : graph.joints[joint]) longest = std::max(longest, task_us(graph, member));
        for (std::size_t m = 0; m < graph.joints[joint].size(); ++m)
          start(graph.joints[joint][m], communicators.lanes[communicators.of_joint[joint]][m], now, longest);
      }
    }
  };
  for (std::size_t id = 0; id < plan.tasks.size(); ++id) {
    if (links.waiting[id] == 0) make_ready(static_cast<TaskId>(id));
  }
  start_what_can(0);
  while (!events.empty()) {
    const double now = events.top().time;
    while (!events.empty() && events.top().time == now) {
      const Event event = events.top();
      events.pop();
      if (event.kind == 1) {
        for (TaskId consumer : graph.joins[event.index].consumers) {
          if (--links.waiting[consumer] == 0) make_ready(consumer);
        }
        continue;
      }
      ++ended;
      const Task& task = plan.tasks[event.index];
      if (task.joint == -1 || event.index == graph.joints[task.joint].front())
        station_of(event.index).free_lanes.push_back(task.lane);
      for (std::int32_t j : links.joins_of_producer[event.index]) {
        if (--producers_left[j] > 0) continue;
        const double latency = graph.joins[j].rank == task.rank ? 0 : plan.topology.link_us;
        events.push({now + latency, 1, j});
      }
    }
    start_what_can(now);
  }
  TW_ASSERT(ended == plan.tasks.size());

  std::vector<std::int32_t> renumbered(plan.lanes.size(), -1);
  std::vector<Lane> used;
  for (std::size_t lane = 0; lane < plan.lanes.size(); ++lane) {
    if (plan.lanes[lane].tasks.empty()) continue;
    renumbered[lane] = static_cast<std::int32_t>(used.size());
    used.push_back(std::move(plan.lanes[lane]));
  }
  plan.lanes = std::move(used);
  for (Task& task : plan.tasks) task.lane = renumbered[task.lane];
  return spans;
}

void assign_signals(TaskGraph& graph) {
  Plan& plan = graph.plan;
  for (const Join& join : graph.joins) {
    const auto signal = static_cast<SignalId>(plan.signals.size());
    const auto total = static_cast<std::uint32_t>(join.producers.size());
    plan.signals.push_back({join.rank, SignalInfo::Kind::add, total});
    // An engine that is a stream is not part of the device that computes.
    const auto computes = [&](TaskId task) { return plan.lanes[plan.tasks[task].lane].engine == Engine::compute; };
    const bool engine_waits = !std::all_of(join.consumers.begin(), join.consumers.end(), computes);
    for (TaskId producer : join.producers) {
      const bool system = engine_waits || !computes(producer) || plan.tasks[producer].rank != join.rank;
      plan.tasks[producer].notifies.push_back({signal, 1, system ? Notify::Scope::system : Notify::Scope::device});
    }
    for (TaskId consumer : join.consumers) {
      TW_ASSERT(plan.tasks[consumer].rank == join.rank);
      plan.tasks[consumer].waits.push_back({signal, total});
    }
  }
}

}  // namespace tileway
