// Schedules and topologies that must be refused where they are made, with the reason.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "error/inputs.hpp"
#include "tileway/error.hpp"
#include "tileway/program.hpp"
#include "tileway/schedule.hpp"

namespace tileway {
namespace {

using testing::in;

void expect_refused(const std::function<void()>& body, const std::string& part) {
  try {
    body();
    ADD_FAILURE() << "accepted; expected: " << part;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(Schedules, AreRefusedWithTheReason) {
  Program p("p", 2);
  const Tensor x = in(p, "x", {8, 4}, Shard(0));
  const Tensor w = in(p, "w", {4, 4}, Replicate());
  const Tensor y = matmul(x, w);
  const Tensor z = all_gather(y);
  const Tensor splits = in(p, "s", {2, 2}, Shard(0), DType::i32);
  const Tensor v = all_to_all_v(y, splits, 8);
  Schedule s = Schedule::unfused(p);
  expect_refused([&] { s.overlap(x, y); }, "the producer is ready before the run");
  expect_refused([&] { s.overlap(x, z); }, "it does not read the producer");
  expect_refused([&] { s.overlap(y, v); }, "known only once all splits and rows are there");
  expect_refused([&] { s.tile(y, {4}); }, "expected 2 extents, none negative, got [4]");
  expect_refused([&] { s.tile(y, {4, -1}); }, "none negative");
  expect_refused([&] { s.group(y, 2); }, "only a communication moves tiles together");
  expect_refused([&] { s.group(z, 0); }, "at least 1 tile");
  expect_refused([&] { s.all_reduce(z, AllReduce::one_shot); }, "not an all_reduce");
  expect_refused([&] { Schedule::named(p, "fast"); },
                 "expected unfused, overlapped, fused, collective or library, got fast");
  expect_refused([&] { lower(p, s, Topology::parse("ranks=3,lanes=1")); }, "another number of ranks");
}

TEST(Schedules, ThatFuseAreRefusedWithTheReason) {
  Program p("p", 2);
  const Tensor x = in(p, "x", {8, 4}, Shard(1));
  const Tensor w = in(p, "w", {4, 4}, Shard(0));
  const Tensor rows = softmax(in(p, "r", {8, 4}, Shard(0)));
  const Tensor columns = all_to_all(rows, 1);
  const Tensor y = matmul(x, w);
  const Tensor z = all_reduce(y);
  const Tensor t = matmul(x, w);
  const Tensor two = all_reduce(t);
  const Tensor more = reduce_scatter(t, 0);
  const Tensor gathered = all_gather(more);
  const Tensor out = matmul(x, w);
  p.output("out", out);
  const Tensor last = all_reduce(out);
  const Tensor again = all_reduce(in(p, "p", {4}, Partial()));
  Schedule s = Schedule::overlapped(p);
  expect_refused([&] { s.fuse(x, y); }, "not every tile of it goes to one place");
  expect_refused([&] { s.fuse(more, gathered); }, "not every tile of it goes to one place");
  expect_refused([&] { s.fuse(y, two); }, "it does not read the producer");
  expect_refused([&] { s.fuse(t, two); }, "another operation reads the producer's result");
  expect_refused([&] { s.fuse(out, last); }, "the producer's result is an output");
  expect_refused([&] { s.fuse(Tensor(&p, p.ops()[again.index()].operands[0]), again); }, "ready before the run");
  expect_refused([&] { s.fuse(y, z, -1); }, "a negative number of tiles; got -1");
  expect_refused([&] { s.fuse(rows, columns); }, "take dimension 1 whole, and go to several members");
  s.fuse(y, z);
  expect_refused([&] { s.all_reduce(z, AllReduce::one_shot); }, "it is fused with its producer");
  expect_refused([&] { s.engine(z, Engine::collective); }, "it is fused with its producer");
  s = Schedule::overlapped(p).all_reduce(z, AllReduce::one_shot);
  expect_refused([&] { s.fuse(y, z); }, "every tile goes to every member");
  s = Schedule::collective(p);
  expect_refused([&] { s.fuse(y, z); }, "a collective library moves the tiles");
}

TEST(Schedules, WithACollectiveLibraryAreRefusedWithTheReason) {
  Program p("p", 2);
  const Tensor x = in(p, "x", {8, 4}, Partial());
  const Tensor y = all_reduce(x);
  const Tensor z_part = in(p, "z", {8, 4}, Shard(0));
  const Tensor z = all_gather(z_part);
  Schedule s = Schedule::overlapped(p);
  expect_refused([&] { s.engine(x, Engine::collective); }, "only a communication's tiles");
  const Tensor splits = in(p, "s", {2, 2}, Shard(0), DType::i32);
  expect_refused([&] { s.engine(all_to_all_v(z_part, splits, 8), Engine::collective); },
                 "expected a communication whose extents are known in the program, got all_to_all_v");
  s.engine(z, Engine::collective).engine(y, Engine::collective);
  expect_refused([&] { s.all_reduce(y, AllReduce::one_shot); }, "has algorithms of its own");
  s.engine(y, Engine::copy).all_reduce(y, AllReduce::one_shot);
  expect_refused([&] { s.engine(y, Engine::collective); }, "choose one or the other");
  s = Schedule::collective(p);
  expect_refused([&] { lower(p, s, Topology::parse("ranks=2,lanes=1")); },
                 "expected collective=1 or more in the topology, got collective=0");
  s.tile(y, {4, 2});
  expect_refused([&] { lower(p, s, Topology::parse("ranks=2,lanes=1,collective=1")); },
                 "the collective engine takes contiguous memory");
  s.tile(y, {4, 0});
  lower(p, s, Topology::parse("ranks=2,lanes=1,collective=1"));
}

TEST(Schedules, WithCollectivesOfMoreGroupsThanLanesAreRefused) {
  Program p("p", 3);
  all_reduce(in(p, "x", {4}, Partial()));
  all_reduce(p.input("part", DType::f32, {4}, Partial(), p.group({0, 1})));
  expect_refused([&] { lower(p, Schedule::collective(p), Topology::parse("ranks=3,lanes=1,collective=1")); },
                 "rank 0 has no collective lane left");
}

TEST(Schedules, WithALibraryOfProductsAreRefusedWithTheReason) {
  Program p("p", 2);
  const Tensor x = in(p, "x", {8, 4}, Shard(0));
  const Tensor y = matmul(x, in(p, "w", {4, 4}, Replicate()));
  const Tensor z = all_gather(y);
  Schedule s = Schedule::overlapped(p);
  expect_refused([&] { s.engine(z, Engine::library); }, "expected a matmul, got all_gather");
  expect_refused([&] { s.engine(x, Engine::library); }, "the library has matrix products only");
  expect_refused([&] { s.engine(y, Engine::copy); }, "only a communication's tiles");
  expect_refused([&] { s.engine(x, Engine::compute); }, "only a communication's tiles");
  s = Schedule::library(p);
  expect_refused([&] { lower(p, s, Topology::parse("ranks=2,lanes=1")); },
                 "expected library=1 or more in the topology, got library=0");
  lower(p, s, Topology::parse("ranks=2,lanes=1,library=1"));
}

TEST(Topologies, AreRefusedByKey) {
  expect_refused([] { Topology::parse(""); }, "the number of ranks is missing");
  expect_refused([] { Topology::parse("ranks=0"); }, "impossible value of 'ranks'");
  expect_refused([] { Topology::parse("ranks=2,lanes=0"); }, "impossible value of 'lanes'");
  expect_refused([] { Topology::parse("ranks=2,ranks=3"); }, "comes twice");
  expect_refused([] { Topology::parse("ranks=2,width=3"); }, "unknown key 'width'");
  expect_refused([] { Topology::parse("ranks=2,lanes"); }, "cannot read 'lanes'");
  expect_refused([] { Topology::parse("ranks=2,lanes=1.5"); }, "impossible value of 'lanes'");
  expect_refused([] { Topology::parse("ranks=2,link_gb_s=0"); }, "a rate of zero");
  expect_refused([] { Topology::parse("ranks=1e30"); }, "impossible value of 'ranks'");
  expect_refused([] { Topology::parse("ranks=2,lanes=4,movers=4"); }, "none is left to compute; expected less than 4");
  expect_refused([] { Topology::parse("ranks=2,library=-1"); }, "cannot read 'library=-1'");
}

}  // namespace
}  // namespace tileway
