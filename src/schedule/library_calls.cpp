#include "schedule/library_calls.hpp"

#include <algorithm>

#include "schedule/lowering.hpp"
#include "tileway/error.hpp"

namespace tileway {
namespace {

constexpr std::int64_t kPackedAlignment = 16;  // bytes: what a library moves fastest

}  // namespace

LibraryCalls::LibraryCalls(TaskGraph& graph, std::string name, std::int32_t origin, const Body& body,
                           std::vector<std::int32_t> ranks, DType dtype)
    : graph_(graph),
      name_(std::move(name)),
      origin_(origin),
      body_(body),
      ranks_(std::move(ranks)),
      dtype_(dtype),
      room_(ranks_.size(), -1) {}

LibraryCalls::Call& LibraryCalls::call_of(std::size_t round, std::int32_t rank) {
  const std::size_t given = body_.kind == Body::Kind::all_reduce ? 1 : ranks_.size();
  const std::size_t taken = body_.kind == Body::Kind::exchange ? ranks_.size() : 1;
  if (round >= rounds_.size())
    rounds_.resize(round + 1, Round(ranks_.size(), {std::vector<Part>(given), std::vector<Part>(taken)}));
  const auto caller = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  TW_ASSERT(caller != ranks_.end() && *caller == rank);
  return rounds_[round][static_cast<std::size_t>(caller - ranks_.begin())];
}

void LibraryCalls::give(std::size_t round, std::size_t place, Held& held, const Box& box, bool fine) {
  call_of(round, held.rank).given[place] = {&held, box, fine};
}

void LibraryCalls::take(std::size_t round, std::size_t place, Held& held, const Box& box) {
  call_of(round, held.rank).taken[place] = {&held, box};
}

Access LibraryCalls::room_for(std::size_t caller, std::int64_t elements) {
  if (room_[caller] == -1)
    room_[caller] =
        graph_.add_buffer({.name = name_ + " packed", .rank = ranks_[caller], .dtype = dtype_, .shape = {0}});
  if (elements == 0) return {.buffer = room_[caller], .box = {{0}, {0}}};
  std::int64_t& end = graph_.plan.buffers[room_[caller]].shape[0];
  const std::int64_t step = kPackedAlignment / static_cast<std::int64_t>(size_of(dtype_));
  const std::int64_t start = (end + step - 1) / step * step;
  end = start + elements;
  return {.buffer = room_[caller], .box = {{start}, {elements}}};
}

bool LibraryCalls::needs_packing(const Part& part) const {
  return !contiguous(part.box, graph_.plan.buffers[part.held->buffer].shape);
}

Access LibraryCalls::pack(std::size_t caller, const Part& part, std::vector<TaskId>& packing) {
  const Access packed = room_for(caller, part.box.volume());
  std::int64_t at = packed.box.start[0];
  for (const Box& piece : lane_pieces(part.box, graph_.plan.topology)) {
    const TaskId task =
        graph_.add_task(Engine::compute, part.held->rank, origin_, {.kind = Body::Kind::copy},
                        {reading(*part.held, piece)}, {writing(packed.buffer, {{at}, {piece.volume()}})});
    at += piece.volume();
    graph_.depend(task, *part.held, piece, part.fine);
    packing.push_back(task);
  }
  return packed;
}

void LibraryCalls::unpack(TaskId call, const Part& part, BufferId room, std::int64_t at) {
  Join arrived{part.held->rank, {call}, {}};
  for (const Box& piece : lane_pieces(part.box, graph_.plan.topology)) {
    const TaskId task =
        graph_.add_task(Engine::compute, part.held->rank, origin_, {.kind = Body::Kind::copy},
                        {{.buffer = room, .box = {{at}, {piece.volume()}}}}, {writing(part.held->buffer, piece)});
    at += piece.volume();
    part.held->written(piece, task);
    arrived.consumers.push_back(task);
  }
  graph_.add_join(std::move(arrived));
}

std::vector<Access> LibraryCalls::reads_of(std::size_t caller, const std::vector<Part>& given,
                                           std::vector<TaskId>& packing) {
  std::vector<Access> reads;
  for (const Part& part : given) {
    if (!part.held) {
      reads.push_back(room_for(caller, 0));
    } else if (!needs_packing(part)) {
      reads.push_back(reading(*part.held, part.box));
    } else {  // what goes to several ranks is packed once
      const auto same = [&](const Part& other) { return other.held == part.held && other.box == part.box; };
      const auto first = static_cast<std::size_t>(std::find_if(given.begin(), given.end(), same) - given.begin());
      reads.push_back(first < reads.size() ? reads[first] : pack(caller, part, packing));
    }
  }
  return reads;
}

std::vector<Access> LibraryCalls::writes_of(std::size_t caller, const std::vector<Part>& taken) {
  std::vector<Access> writes;
  for (const Part& part : taken) {
    if (part.held && !needs_packing(part)) {
      writes.push_back(writing(part.held->buffer, part.box));
    } else {
      const Access room = room_for(caller, part.held ? part.box.volume() : 0);
      writes.push_back(writing(room.buffer, room.box));
    }
  }
  return writes;
}

// What packs for any member comes before the calls, as order.cpp wants the producers of a joint.
void LibraryCalls::add_round(const Round& round) {
  std::vector<std::vector<Access>> reads;
  std::vector<Join> packed(round.size());
  for (std::size_t c = 0; c < round.size(); ++c) reads.push_back(reads_of(c, round[c].given, packed[c].producers));
  std::vector<TaskId> calls;
  for (std::size_t c = 0; c < round.size(); ++c) {
    const TaskId call = graph_.add_task(Engine::collective, ranks_[c], origin_, body_, std::move(reads[c]),
                                        writes_of(c, round[c].taken));
    for (const Part& given : round[c].given) {
      if (given.held && !needs_packing(given)) graph_.depend(call, *given.held, given.box, given.fine);
    }
    graph_.add_join({ranks_[c], std::move(packed[c].producers), {call}});
    calls.push_back(call);
  }
  graph_.add_joint(calls);
  for (std::size_t c = 0; c < round.size(); ++c) {
    for (std::size_t p = 0; p < round[c].taken.size(); ++p) {
      const Part& taken = round[c].taken[p];
      if (!taken.held) continue;
      if (needs_packing(taken)) {
        const Access& packed = graph_.plan.tasks[calls[c]].writes[p];
        unpack(calls[c], taken, packed.buffer, packed.box.start[0]);
      } else {
        taken.held->written(taken.box, calls[c]);
      }
    }
  }
}

void LibraryCalls::add() {
  for (const Round& round : rounds_) add_round(round);
}

}  // namespace tileway
