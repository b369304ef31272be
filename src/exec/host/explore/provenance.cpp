#include "exec/host/explore/provenance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "plan/joint.hpp"
#include "plan/verify/memory.hpp"
#include "plan/verify/rules.hpp"

namespace tileway::host {
namespace {

// A bijection that spreads bits (the finaliser of SplitMix64).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

std::uint64_t mix(int first, std::uint64_t second) { return mix(mix(static_cast<std::uint64_t>(first)) + second); }

}  // namespace

Provenance::Provenance(const verifier::Sequence& sequence, bool given)
    : sequence_(sequence),
      plan_(sequence.plan(0)),
      given_(given),
      gathered_(sequence.instances(), 0),
      joints_(joints_of(plan_)) {
  for (const Buffer& buffer : plan_.buffers) {
    first_slot_.push_back(slots_.size());
    slots_.resize(slots_.size() + buffer.slots);
    if (buffer.role == Buffer::Role::scratch || volume(buffer.shape) == 0) continue;
    for (std::int32_t s = 0; s < buffer.slots; ++s)
      slots_[first_slot_.back() + s].push_back({Box::whole(buffer.shape), -1, -1, mix(first_slot_.back())});
  }
  for (std::size_t p = 0; p < plan_.partitions.size(); ++p)
    slices_.push_back(verifier::slices_of(plan_, static_cast<std::int32_t>(p)));
}

void Provenance::write(const Access& access, int run, std::uint64_t tag) {
  if (access.box.empty()) return;
  Slot& pieces = slot(access.buffer, run);
  if (access.mode == Access::Mode::accumulate) {
    for (Piece& piece : pieces) {  // any order of adding gives the same
      if (overlaps(piece.box, access.box)) piece.tag += mix(tag);
    }
    return;
  }
  Slot kept;
  for (const Piece& piece : pieces) {
    const bool other_slice = access.partition != -1 && piece.slice != -1 && piece.slice != access.slice;
    if (other_slice || !overlaps(piece.box, access.box)) {
      kept.push_back(piece);
      continue;
    }
    for (const Box& rest : verifier::without(piece.box, access.box)) {
      kept.push_back(piece);
      kept.back().box = rest;
    }
  }
  kept.push_back({access.box, access.partition == -1 ? -1 : access.slice, run, tag});
  pieces.swap(kept);
}

std::optional<Finding> Provenance::read(const Access& access, const Instance& reader, int run, std::uint64_t& tag) {
  if (access.box.empty()) return std::nullopt;
  std::vector<Box> fresh;
  std::set<std::int32_t> slices;
  for (const Piece& piece : slot(access.buffer, run)) {
    const Box common = intersect(piece.box, access.box);
    if (common.empty()) continue;
    // Weighed by size, so that it does not matter into how many pieces a box has been cut.
    tag += mix(piece.tag) * static_cast<std::uint64_t>(common.volume());
    if (piece.run > run) {
      return Finding{Fault::race,
                     {reader},
                     fmt::format("{} reads {} of buffer {} '{}', which run {} has written already\n",
                                 verifier::describe(sequence_, reader), to_string(common), access.buffer,
                                 plan_.buffers[access.buffer].name, piece.run)};
    }
    if (piece.run != run) continue;
    if (piece.slice == -1) fresh.push_back(common);
    if (piece.slice != -1) slices.insert(piece.slice);
  }
  const Buffer& buffer = plan_.buffers[access.buffer];
  if (buffer.role != Buffer::Role::scratch) return std::nullopt;
  for (std::size_t p = 0; p < slices_.size(); ++p) {
    if (plan_.partitions[p].target == access.buffer && static_cast<int>(slices.size()) == slices_[p])
      return std::nullopt;
  }
  const std::optional<Box> missing = verifier::uncovered(access.box, fresh);
  if (!missing || (given_ && !somebody_writes(access.buffer, *missing))) return std::nullopt;
  return Finding{Fault::unwritten,
                 {reader},
                 fmt::format("{} reads {} of buffer {} '{}' of rank {}, which run {} has not written yet\n",
                             verifier::describe(sequence_, reader), to_string(*missing), access.buffer, buffer.name,
                             buffer.rank, run)};
}

bool Provenance::somebody_writes(BufferId buffer, const Box& box) const {
  for (const Task& task : plan_.tasks) {
    for (const Access& write : task.writes) {
      if (write.buffer == buffer && overlaps(write.box, box)) return true;
    }
  }
  return false;
}

// Reads the outputs of the run before, then writes the inputs of the run to come.
std::optional<Finding> Provenance::take_caller(const Instance& caller) {
  std::optional<Finding> finding;
  std::uint64_t which = 0;
  for (const Plan::Binding& output : plan_.outputs) {
    ++which;
    if (output.rank != caller.rank || caller.run == 0) continue;
    const Access access{.buffer = output.buffer, .box = Box::whole(plan_.buffers[output.buffer].shape)};
    std::uint64_t tag = 0;
    std::optional<Finding> found = read(access, caller, caller.run - 1, tag);
    if (!finding) finding = std::move(found);
    outcome_ += mix(caller.run, tag + which);
  }
  for (const Plan::Binding& input : plan_.inputs) {
    ++which;
    if (input.rank != caller.rank || caller.run == sequence_.runs()) continue;
    const Box whole = Box::whole(plan_.buffers[input.buffer].shape);
    write({.buffer = input.buffer, .box = whole, .mode = Access::Mode::write}, caller.run, mix(caller.run, which));
  }
  return finding;
}

std::uint64_t Provenance::given_by_joint(const Instance& instance, std::size_t write) const {
  const Task& task = plan_.tasks[instance.task];
  const std::vector<TaskId>& members = joints_[task.joint];
  const auto self =
      static_cast<std::size_t>(std::find(members.begin(), members.end(), instance.task) - members.begin());
  std::uint64_t sum = 0;
  for (const auto& [member, read] : sources_of(plan_.bodies[task.body], members.size(), self, write))
    sum = mix(static_cast<int>(member), sum + shown_.at(sequence_.instance(instance.run, members[member]))[read]);
  return sum;
}

std::optional<Finding> Provenance::take(const Event& event) {
  const Instance& instance = event.instance;
  if (instance.task == -1) return take_caller(instance);
  std::optional<Finding> finding;
  const Task& task = plan_.tasks[instance.task];
  const int number = sequence_.instance(instance.run, instance.task);
  std::uint64_t& gathered = gathered_[number];
  if (task.joint != -1) shown_[number].resize(task.reads.size(), 0);
  std::uint64_t place = 0;
  for (std::size_t r = 0; r < task.reads.size(); ++r) {
    const Access& access = task.reads[r];
    ++place;
    if (access.stage != event.stage) continue;
    std::uint64_t tag = 0;
    std::optional<Finding> found = read(access, instance, instance.run, tag);
    if (!finding) finding = std::move(found);
    gathered += mix(tag + place);
    if (task.joint != -1) shown_[number][r] = tag;
  }
  for (std::size_t w = 0; w < task.writes.size(); ++w) {
    const Access& access = task.writes[w];
    ++place;
    if (access.stage != event.stage || access.box.empty()) continue;
    const std::uint64_t made_from = task.joint == -1 ? gathered : given_by_joint(instance, w);
    std::uint64_t tag = 0;
    if (access.mode == Access::Mode::accumulate && !finding) finding = read(access, instance, instance.run, tag);
    write(access, instance.run, mix(task.joint == -1 ? instance.task : task.joint, made_from + place));
  }
  return finding;
}

}  // namespace tileway::host
