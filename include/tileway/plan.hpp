// Exactly what happens: for each rank, buffers, signals, and lanes of tasks. A plan is data; docs/PLAN.md states what
// it means, and whoever lowers, proves, executes or simulates plans agrees on that page.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tileway/dtype.hpp"
#include "tileway/function.hpp"
#include "tileway/shape.hpp"
#include "tileway/topology.hpp"

namespace tileway {

// Indices into the vectors of a Plan; -1 is none.
using BufferId = std::int32_t;
using SignalId = std::int32_t;
using TaskId = std::int32_t;
using BodyId = std::int32_t;

// Dense row-major memory on one rank.
struct Buffer {
  enum class Role : std::uint8_t {
    input,     // written by the caller between runs; a program's update may write it in a run
    constant,  // filled with `value` once, never written
    scratch,   // everything else, outputs included; holds nothing at the start of a run
  };
  std::string name;
  std::int32_t rank = 0;
  Role role = Role::scratch;
  DType dtype = DType::f32;
  Shape shape;
  bool symmetric = false;  // mapped by every rank: what peers read or write
  double value = 0;
  std::int32_t slots = 1;  // copies of it in memory: every access of run e is to copy e mod slots
  std::string shared{};    // plans of one group that name memory alike share it; empty: the plan's own
};

// All kinds are raised `total` in a run, and a wait of run e never sees the notifications of another run.
struct SignalInfo {
  enum class Kind : std::uint8_t {
    add,     // a counter that any tasks add to
    set,     // one task stores the number of the run; total 1
    gate,    // opened by one task of its own rank and closed by its one waiter, for engines that wait for a constant;
             // total 1
    packet,  // a set whose value travels in every word of `buffer` that its one notifier writes; total 1
  };
  std::int32_t rank = 0;  // where it lies: the rank that waits for it
  Kind kind = Kind::add;
  std::uint32_t total = 0;  // the amount that all notifications of one run make up
  BufferId buffer = -1;     // packet
};
inline constexpr int kSignalKindCount = 4;

// When in the life of a task, which may overlap its neighbours in the lane.
enum class Stage : std::uint8_t { load, epilogue, store };

// One argument of a task's body: a box of a buffer. What is declared here is what the body is handed.
struct Access {
  enum class Mode : std::uint8_t { read, write, accumulate };
  BufferId buffer = -1;
  Box box;
  Mode mode = Mode::read;
  Stage stage = Stage::load;
  ReduceOp op = ReduceOp::sum;  // accumulate
  std::int32_t partition = -1;  // dynamic: the task touches only slice `slice` of this partition, inside the box
  std::int32_t slice = -1;
};

struct Wait {
  SignalId signal = -1;
  std::uint32_t value = 0;  // relative to the run, at most the total
  Stage stage = Stage::load;
};

// Raised after all of the task's writes have completed: visible to whoever has waited for it.
struct Notify {
  enum class Scope : std::uint8_t { device, system };      // system when a peer, the host or a NIC watches
  enum class After : std::uint8_t { stores, bulk_store };  // which completion it follows
  SignalId signal = -1;
  std::uint32_t amount = 1;
  Scope scope = Scope::system;
  After after = After::stores;
};

// What is done to each element of a product before it is stored: a pointwise function or a cast of what there is so far
// and of elements in its place, rounded to `dtype`.
struct Step {
  static constexpr std::int32_t kSoFar = -1;
  static constexpr std::int32_t kNone = -2;
  bool cast = false;
  Function function = Function::add;  // unless it casts; its operands are of `dtype` too
  DType dtype = DType::f32;
  std::array<std::int32_t, 3> operands{kNone, kNone, kNone};  // reads of the task, or kSoFar
  friend bool operator==(const Step&, const Step&) = default;
};
inline constexpr std::size_t kMostSteps = 8;

// What a task computes from its reads into its writes, both in the order of the lists. Kinds are kernels, not
// operators.
struct Body {
  enum class Kind : std::uint8_t {
    none,           // only waits and notifies
    copy,           // same elements in row-major order; boxes may differ in shape
    cast,           // copy with a change of dtype
    pointwise,      // `function`; extents of 1 broadcast, dimensions align at the last
    matmul,         // [.., m, k] x [.., k, n], fp32 sums, batch extents of 1 broadcast; `tf32`
    scaled_matmul,  // e4m3 [m, k] x e4m3 [n, k] transposed, scales f32 [m or 1, 1] and [1, n or 1]: fp32 sums, times
                    // both scales, rounded once
    softmax,        // over the last dimension
    layer_norm,     // x, gamma, beta; `value` epsilon
    rms_norm,       // x, gamma; `value` epsilon
    reduce_dim,     // `op` along `dim` of the read; the write has extent 1 there, or lacks it
    transpose,      // dimension i of the write is dimension dims[i] of the read
    gather_rows,    // table, indices; the table box begins at row `first` of `rows`: an index into other rows gives
                    // zeros, one outside [0, rows) is an error
    embedding_bag,  // tables, indices; `op` sum or mean; `first` and `rows` as above
    reduce_ranks,   // `op` over all reads in order: fp32, rounded once; reads may be packed. Every write gets it
    copy_rows,      // dynamic: splits [n, n] and rows: sends slice for `to` of member `from`
    zero_rows,      // dynamic: splits [n, n]: zeroes the rows of member `to` past what it receives
    // Joint, with contiguous boxes; members are counted in the order of their ranks. Sums are in that order, fp32 and
    // rounded once; a library may add in another one where there are more than two.
    all_reduce,      // `op` over what the members read: one read and one write each
    reduce_scatter,  // each member's one write is `op` over what all members read in its place: a read for each member
    exchange,        // write i of member j is read j of member i: a read and a write for each member, of which those
                     // for the member itself are empty
  };
  Kind kind = Kind::none;
  Function function = Function::add;
  ReduceOp op = ReduceOp::sum;
  double value = 0;
  std::int32_t dim = 0;
  Dims dims{};
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::int32_t from = 0;
  std::int32_t to = 0;
  bool tf32 = false;             // operands, which are f32, are rounded to tf32 (Precision::tf32 in program.hpp)
  std::vector<Step> epilogue{};  // matmul of two dimensions: what follows on its elements, rounded to its dtype, and
                                 // is stored in no narrower one; reads
                                 // that it names come behind the product's own two and broadcast as pointwise's
  friend bool operator==(const Body&, const Body&) = default;
};
inline constexpr int kBodyKindCount = 19;
std::string_view name_of(Body::Kind kind);
Body::Kind parse_body_kind(std::string_view text);

// Slices of the rows of one buffer, disjoint by construction: slice s < n holds the rows that member s sends to member
// `to`, one after the other; slice n is what is left. The lengths are column `to` of an [n, n] buffer of splits, of
// which every rank that names the partition has a copy.
struct Partition {
  std::int32_t to = 0;
  BufferId target = -1;
};

struct Task {
  std::int32_t rank = 0;
  std::int32_t lane = 0;   // index into Plan::lanes
  std::int32_t index = 0;  // position in the lane
  BodyId body = 0;
  std::int32_t joint = -1;      // tasks of several ranks with one number are one collective: none ends before all have
                                // begun
  bool after_previous = false;  // starts once the lane's earlier tasks have stored
  std::int32_t origin = 0;      // index into Plan::origins: what it is part of, for a person
  std::vector<Wait> waits;
  std::vector<Access> reads;
  std::vector<Access> writes;
  std::vector<Notify> notifies;
};

struct Lane {
  std::int32_t rank = 0;
  Engine engine = Engine::compute;
  std::vector<TaskId> tasks;
};

struct Plan {
  // A tensor that the caller writes or reads, on one rank.
  struct Binding {
    std::string name;
    std::int32_t rank = 0;
    BufferId buffer = -1;
  };

  std::string name;
  std::string schedule;
  Topology topology;
  std::vector<Buffer> buffers;
  std::vector<SignalInfo> signals;
  std::vector<Body> bodies;
  std::vector<Partition> partitions;
  std::vector<Lane> lanes;
  std::vector<Task> tasks;
  std::vector<std::string> origins;
  std::vector<Binding> inputs;
  std::vector<Binding> outputs;
  std::vector<std::string> description;  // of the program, a line each: what ranks compare before they run it

  int ranks() const { return topology.ranks; }
  // Bytes that a task moves to other ranks: 0 for one that stays at home. How a joint that reduces goes about it is its
  // library's affair; it counts as a ring, once around for reduce_scatter and twice for all_reduce.
  std::int64_t bytes_sent(const Task& task) const;
  // Whether a task touches a buffer or raises a signal of another rank. If none does, no rank needs to see another's
  // memory: whatever goes between ranks, joints bring.
  bool reaches_peers() const;
};

// Throws Error (invalid), naming the task, for: an index out of range; a box outside its buffer; a buffer of another
// rank that is not symmetric; a wait for more than the total; a total that is not the sum of its notifications; a wait
// on another rank's signal; a lane or index that does not match; an output element not written exactly once; a body
// whose arguments do not fit it; a set, gate or packet signal that is not raised once; a joint with two tasks of a
// rank, or whose members do not give what the others take.
void check_structure(const Plan& plan);

// Counts, engines, bytes; with `full`, every task on a line.
std::string to_text(const Plan& plan, bool full = false);
std::string to_json(const Plan& plan);
// Throws Error (invalid) for anything malformed, and runs check_structure.
Plan plan_from_json(std::string_view text);
// 64 bits over every field: what ranks must agree on.
std::uint64_t fingerprint(const Plan& plan);

}  // namespace tileway
