// How a program is run: choices that do not touch its meaning, and the lowering to a plan.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "tileway/plan.hpp"
#include "tileway/program.hpp"
#include "tileway/topology.hpp"

namespace tileway {

// How an all_reduce moves its tiles. two_shot: each tile goes to its owner, is reduced there and pushed to all:
// 2(n-1)/n of the tensor leaves each rank. one_shot: every rank pushes its partials to all and reduces all tiles
// itself: (n-1) times the tensor leaves, in one step. Both add in rank order: same bits.
enum class AllReduce : std::uint8_t { two_shot, one_shot };

class Schedule {
 public:
  // Every operation waits until what it reads is complete on its rank.
  static Schedule unfused(const Program& program);
  // Every edge that may be overlapped is.
  static Schedule overlapped(const Program& program);
  // Overlapped, with every communication but all_to_all_v on the collective library: plans for it need a topology with
  // collective lanes, and where there is no all_to_all_v no rank needs to see another's memory.
  static Schedule collective(const Program& program);
  // Overlapped, with all legal fusions: of products with what is done to their elements, and of computations with the
  // communication that takes their tiles.
  static Schedule fused(const Program& program);
  // Overlapped, with every matmul on the library of matrix products: plans for it need a topology with library lanes.
  static Schedule library(const Program& program);
  // "unfused", "overlapped", "fused", "collective" or "library"; throws Error (invalid) otherwise.
  static Schedule named(const Program& program, std::string_view name);

  // Lets `consumer` start on the tiles of `producer` that are done, tile by tile. Legal where consumer reads producer
  // and producer is computed or communicated in the program; refused for all_to_all_v, whose parts are known only when
  // it runs. Throws Error (invalid) with the reason.
  Schedule& overlap(Tensor producer, Tensor consumer);
  // Has the tasks of a matmul go on with the elements that they have: `function` is a pointwise function or a cast of
  // `product`, which is a matmul of two dimensions or has been fused with one. Every step is rounded to its dtype as if
  // it stood alone: same bits. Legal by compute lanes, for floating dtypes other than e4m3, none narrower than the
  // product's, where the result has the shape and the placement of the product, which nothing else reads and which is
  // no output, for kMostSteps steps at most. Throws Error (invalid) with the reason otherwise.
  Schedule& fuse_epilogue(Tensor product, Tensor function);
  // Has the tasks of `producer` write their tiles straight to where `communication` would bring them, a peer's memory
  // included, by compute lanes; overlaps the two. An all_reduce in two shots then has the sums written to all members
  // by the tasks that add. The communication's tiles are the producer's. With `last`, only the last so many tiles for
  // each destination, and the others go as Schedule::engine says: what is sent last waits for no engine. Legal for
  // reduce_scatter, all_reduce in two shots and all_to_all, not by a collective library, of a computation that nothing
  // else reads and that is no output. Throws Error (invalid) with the reason otherwise.
  Schedule& fuse(Tensor producer, Tensor communication, int last = 0);
  // Extents of the tiles of an operation's result, per dimension; 0 takes the whole extent. Row functions keep their
  // last dimension whole.
  Schedule& tile(Tensor value, Shape extents);
  // How many tile rows a communication moves at once.
  Schedule& group(Tensor communication, int tiles);
  Schedule& all_reduce(Tensor communication, AllReduce algorithm);
  // What moves a communication's tiles. copy, which is what a communication has without a choice: copy lanes, where the
  // topology has them. compute: compute lanes. collective: a collective library, in calls that all members make
  // together, each for a tile; legal but for all_to_all_v, over any group. It takes contiguous memory: what is none is
  // packed and unpacked by compute lanes, and tiles of an all_reduce cut one dimension and take all of those inside it.
  // It adds in an order of its own: with more than two ranks sums of floating numbers may differ in their last bits
  // from other schedules' and between runs.
  // Or what computes a matmul. compute, which is what it has without a choice: compute lanes. library: a library of
  // matrix products (cuBLASLt), a call a tile; tiles are then of whole rows, a few for each destination, unless tile()
  // says otherwise. It adds along k in fp32 in an order of its own, which may depend on the tile: such a schedule does
  // not agree with others bit for bit. And it may cut the operands of a tf32 product where others round them.
  // Throws Error (invalid) with the reason where it is not legal.
  Schedule& engine(Tensor value, Engine engine);

  const std::string& name() const { return name_; }
  bool overlaps(int producer, int consumer) const { return overlap_.contains({producer, consumer}); }
  bool overlaps_anything() const { return !overlap_.empty(); }
  const Shape* tile_of(int op) const;
  int group_of(int op) const;
  AllReduce all_reduce_of(int op) const;
  // What was chosen; copy where nothing was.
  Engine engine_of(int op) const;
  // Whether an operation is done by the tasks of the one that reads it.
  bool absorbed(int op) const { return absorbed_.contains(op); }
  // Of a communication: how many tiles for each destination its producer's tasks bring there themselves.
  int fused_tiles_of(int op) const;

 private:
  explicit Schedule(std::string name) : name_(std::move(name)) {}

  std::string name_;
  std::set<std::pair<int, int>> overlap_;
  std::map<int, Shape> tiles_;
  std::map<int, int> groups_;
  std::map<int, AllReduce> all_reduces_;
  std::map<int, Engine> engines_;
  std::map<int, int> fused_;  // by communication: the last so many tiles
  std::set<int> absorbed_;    // products, and steps on the way from them to the last
};

// A plan, and when the cost model expects each of its tasks to run.
struct Lowered {
  Plan plan;
  struct Span {
    double begin_us;
    double end_us;
  };
  std::vector<Span> predicted;  // by TaskId
};

// Any program, any schedule of it, any topology with as many ranks as the program; throws Error (invalid) where the
// schedule gives collectives to a library and the topology has no collective lane for each group of ranks of a rank, or
// an all_reduce's tiles are not contiguous; or where it gives products to a library and the topology has no library
// lanes. The order of tasks in the lanes is that of a simulated run, in which ready tasks that more transfers depend on
// go first and every rank starts with a different peer; so a lane's order never contradicts a dependency and strictly
// serial lanes cannot deadlock.
Lowered lower(const Program& program, const Schedule& schedule, const Topology& topology);

}  // namespace tileway
