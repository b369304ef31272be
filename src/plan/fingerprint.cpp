// Every field of a plan, in turn, into one number. Structures are taken apart by structured bindings, which do not
// compile once a field is missing here.
#include <concepts>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "base/hash.hpp"
#include "tileway/plan.hpp"

namespace tileway {
namespace {

class Hash {
 public:
  template <typename T>
  requires std::integral<T> || std::is_enum_v<T>
  void add(T value) {
    value_ = (value_ ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15ULL;
    value_ ^= value_ >> 29;
  }
  void add(double value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    add(bits);
  }
  void add(const std::string& text) {
    add(text.size());
    add(fnv1a(text));
  }
  void add(const Dims& dims) {
    add(dims.size());
    for (const std::int64_t extent : dims) add(extent);
  }
  template <typename T>
  void add(const std::vector<T>& list) {
    add(list.size());
    for (const T& item : list) add(item);
  }
  void add(const Box& box) {
    const auto& [start, extent] = box;
    add_all(start, extent);
  }
  void add(const Topology& topology) {
    const auto& [ranks, lanes, copy, collective, library, movers, lane_gflops, lane_gb_s, link_gb_s, link_us] =
        topology;
    add_all(ranks, lanes, copy, collective, library, movers, lane_gflops, lane_gb_s, link_gb_s, link_us);
  }
  void add(const Buffer& buffer) {
    const auto& [name, rank, role, dtype, shape, symmetric, value, slots, shared] = buffer;
    add_all(name, rank, role, dtype, shape, symmetric, value, slots, shared);
  }
  void add(const SignalInfo& signal) {
    const auto& [rank, kind, total, buffer] = signal;
    add_all(rank, kind, total, buffer);
  }
  void add(const Access& access) {
    const auto& [buffer, box, mode, stage, op, partition, slice] = access;
    add_all(buffer, box, mode, stage, op, partition, slice);
  }
  void add(const Wait& wait) {
    const auto& [signal, value, stage] = wait;
    add_all(signal, value, stage);
  }
  void add(const Notify& notify) {
    const auto& [signal, amount, scope, after] = notify;
    add_all(signal, amount, scope, after);
  }
  void add(const Step& step) {
    const auto& [cast, function, dtype, operands] = step;
    add_all(cast, function, dtype, operands[0], operands[1], operands[2]);
  }
  void add(const Body& body) {
    const auto& [kind, function, op, value, dim, dims, first, rows, from, to, tf32, epilogue] = body;
    add_all(kind, function, op, value, dim, dims, first, rows, from, to, tf32, epilogue);
  }
  void add(const Partition& partition) {
    const auto& [to, target] = partition;
    add_all(to, target);
  }
  void add(const Task& task) {
    const auto& [rank, lane, index, body, joint, after_previous, origin, waits, reads, writes, notifies] = task;
    add_all(rank, lane, index, body, joint, after_previous, origin, waits, reads, writes, notifies);
  }
  void add(const Lane& lane) {
    const auto& [rank, engine, tasks] = lane;
    add_all(rank, engine, tasks);
  }
  void add(const Plan::Binding& binding) {
    const auto& [name, rank, buffer] = binding;
    add_all(name, rank, buffer);
  }
  void add(const Plan& plan) {
    const auto& [name, schedule, topology, buffers, signals, bodies, partitions, lanes, tasks, origins, inputs, outputs,
                 description] = plan;
    add_all(name, schedule, topology, buffers, signals, bodies, partitions, lanes, tasks, origins, inputs, outputs,
            description);
  }
  std::uint64_t value() const { return value_; }

 private:
  template <typename... Fields>
  void add_all(const Fields&... fields) {
    (add(fields), ...);
  }
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

}  // namespace

std::uint64_t fingerprint(const Plan& plan) {
  Hash hash;
  hash.add(plan);
  return hash.value();
}

}  // namespace tileway
