// Program and plan files that are corrupt, truncated or hostile: a clear error, no crash, no giant allocation.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

#include "tileway/error.hpp"
#include "tileway/explore.hpp"
#include "tileway/ops.hpp"
#include "tileway/schedule.hpp"

namespace tileway {
namespace {

void expect_refused(const std::function<void()>& body, const std::string& part) {
  try {
    body();
    ADD_FAILURE() << "accepted; expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::logic_error("the test is out of date: no '" + from + "'");
  return text.replace(at, from.size(), to);
}

Program small_program() {
  return make_program(find_operator("gemm_all_reduce"), 2, DType::f32, std::vector<std::int64_t>{8, 8, 8});
}

TEST(ProgramFiles, ThatAreWrongAreRefusedByEntry) {
  const std::string good = small_program().to_json();
  const auto load = [](std::string text) { return [text] { Program::from_json(text); }; };
  EXPECT_EQ(Program::from_json(good).to_json(), good);
  expect_refused(load(""), "program: not valid JSON");
  expect_refused(load(good + std::string(1, '\0') + "hidden"), "a zero byte");
  expect_refused(load("[]"), "program: not what belongs there; expected an object");
  expect_refused(load(good.substr(0, good.size() / 2)), "not valid JSON");
  expect_refused(load(std::string(100000, '[')), "nested too deeply");
  expect_refused(load(R"({"name": 1, "name": 2})"), "key 'name' comes twice");
  expect_refused(load(replaced(good, "\"tileway_program\": 1", "\"tileway_program\": 2")), "program.tileway_program");
  expect_refused(load(replaced(good, "\"world\": 2", "\"world\": 2000000000")), "program.world");
  expect_refused(load(replaced(good, "\"world\": 2", "\"world\": -2")), "program.world");
  expect_refused(load(replaced(good, "\"world\": 2", "\"world\": 2, \"colour\": 1")), "unknown field 'colour'");
  expect_refused(load(replaced(good, "\"matmul\"", "\"matmult\"")), "program.ops[2].op: not what belongs there");
  expect_refused(load(replaced(good, "[0,1]", "[0,7]")), "an operand that does not exist");
  expect_refused(load(replaced(good, "[0,1]", "[0,-1]")), "program.ops[2].operands[1]");
  expect_refused(load(replaced(good, "[0,1]", "[0,1.5]")), "program.ops[2].operands[1]");
  expect_refused(load(replaced(good, "[0,1]", "[0]")), "at program.ops[2]: wrong number of operands");
  expect_refused(load(replaced(good, "\"shape\":[8,8]", "\"shape\":[8,7]")), "program.ops[0]");
  expect_refused(load(replaced(replaced(good, "\"shape\":[8,8]", "\"shape\":[8,1099511627776]"), "[4,4]",
                               "[549755813888,549755813888]")),
                 "too large");
  expect_refused(load(replaced(good, "\"shape\":[8,8]", "\"shape\":[8,99999999999999999999]")),
                 "program.ops[0].shape[1]");
  expect_refused(load(replaced(good, "\"shape\":[8,8]", "\"shape\":[1,1,1,1,1,1,1]")), "at most 6 dimensions");
  expect_refused(load(replaced(good, "\"sizes\":[4,4]", "\"sizes\":[4,5]")),
                 "the shard sizes do not cut the dimension");
  expect_refused(load(replaced(good, "\"f32\"", "\"f33\"")), "program.ops[0].dtype");
  expect_refused(load(replaced(good, "\"op\":3", "\"op\":4")), "program.outputs[0].op");
  const auto with_precision = [&](const std::string& op, const std::string& precision) {
    return load(replaced(good, "\"op\":\"" + op + "\"", "\"op\":\"" + op + "\",\"precision\":" + precision));
  };
  EXPECT_NO_THROW(with_precision("matmul", "\"tf32\"")());
  expect_refused(with_precision("matmul", "\"tf33\""), "program.ops[2].precision");
  expect_refused(with_precision("matmul", "true"), "program.ops[2].precision");
  expect_refused(with_precision("all_reduce", "\"tf32\""),
                 "at program.ops[3]: only a matmul has a precision; got tf32");
  expect_refused(
      [&] {
        std::string bf16 = replaced(replaced(good, "\"f32\"", "\"bf16\""), "\"f32\"", "\"bf16\"");
        Program::from_json(replaced(bf16, "\"op\":\"matmul\"", "\"op\":\"matmul\",\"precision\":\"tf32\""));
      },
      "at program.ops[2]: tf32 is a precision of products of f32; expected f32, got bf16");
}

Plan small_plan() {
  const Program program = small_program();
  return lower(program, Schedule::overlapped(program), Topology::parse("ranks=2,lanes=1,copy=1")).plan;
}

TEST(PlanFiles, RoundTrip) {
  const Plan plan = small_plan();
  const std::string text = to_json(plan);
  const Plan loaded = plan_from_json(text);
  EXPECT_EQ(to_json(loaded), text);
  EXPECT_EQ(fingerprint(loaded), fingerprint(plan));
  EXPECT_EQ(to_text(loaded, true), to_text(plan, true));
}

TEST(PlanFiles, ThatAreWrongAreRefusedByTask) {
  const std::string good = to_json(small_plan());
  const auto load = [](std::string text) { return [text] { plan_from_json(text); }; };
  expect_refused(load(good.substr(0, good.size() - 20)), "not valid JSON");
  expect_refused(load(replaced(good, "\"total\":", "\"total\":1")),
                 "the total is not what its notifications add up to");
  expect_refused(load(replaced(good, "\"engine\":\"compute\"", "\"engine\":\"magic\"")), "one of compute, copy");
  expect_refused(load(replaced(good, "\"tasks\":[0", "\"tasks\":[1")), "does not say that it is number 0 here");
  expect_refused(load(replaced(good, "\"tasks\":[0", "\"tasks\":[99999")), "no such task");
  expect_refused(load(replaced(good, "\"symmetric\":true", "\"symmetric\":false")), "is not symmetric");
  expect_refused(load(replaced(good, "\"kind\":\"matmul\"", "\"kind\":\"copy\"")),
                 "the arguments do not fit the body copy");
  const std::string matmul = "\"kind\":\"matmul\"";
  EXPECT_NO_THROW(load(replaced(good, matmul, matmul + ",\"tf32\":true"))());
  expect_refused(load(replaced(good, matmul, matmul + ",\"tf32\":1")), ".tf32");
  const std::string sum = "\"kind\":\"reduce_ranks\"";
  expect_refused(load(replaced(good, sum, sum + ",\"tf32\":true")),
                 "the arguments do not fit the body reduce_ranks tf32");
  expect_refused(load(replaced(good, "ranks=2", "ranks=1")), "no such rank");
  expect_refused(load(replaced(good, "ranks=2", "ranks=x")), "cannot read");
}

// Changes of the structure itself, each seen by its own rule.
// Checks a small plan with something changed.
std::function<void()> changed(const std::function<void(Plan&)>& change) {
  return [=] {
    Plan plan = small_plan();
    change(plan);
    check_structure(plan);
  };
}

TEST(PlanStructure, RefusesScaledProductsThatDoNotFitAndPlainOnesOfE4m3) {
  Program program("p", 2);
  const Tensor x = program.input("x", DType::e4m3, {6, 8}, Shard(1));
  const Tensor w = program.input("w", DType::e4m3, {4, 8}, Shard(1));
  const Tensor rows = program.input("rows", DType::f32, {6, 1}, Replicate());
  const Tensor columns = program.input("columns", DType::f32, {1, 4}, Replicate());
  program.output("y", all_reduce(scaled_matmul(x, w, rows, columns, DType::bf16)));
  const Plan good = lower(program, Schedule::overlapped(program), Topology::parse("ranks=2,lanes=1,copy=1")).plan;
  check_structure(good);
  std::size_t product = 0;
  while (good.bodies[good.tasks[product].body].kind != Body::Kind::scaled_matmul) ++product;
  const auto refused = [&](const std::function<void(Plan&, Task&)>& change, const char* part) {
    expect_refused(
        [&] {
          Plan plan = good;
          change(plan, plan.tasks[product]);
          check_structure(plan);
        },
        part);
  };
  const auto dtype_of = [](Plan& plan, const Access& access) -> DType& { return plan.buffers[access.buffer].dtype; };
  constexpr const char* kBody = "do not fit the body scaled_matmul";
  refused([&](Plan& p, Task& t) { dtype_of(p, t.reads[0]) = DType::bf16; }, kBody);
  refused([&](Plan& p, Task& t) { dtype_of(p, t.reads[2]) = DType::bf16; }, kBody);
  refused([&](Plan& p, Task& t) { dtype_of(p, t.writes[0]) = DType::e4m3; }, kBody);
  refused([&](Plan&, Task& t) { t.reads[1].box.extent[1] -= 1; }, kBody);
  refused([&](Plan&, Task& t) { t.reads[2].box.extent[0] = 2; }, kBody);
  refused([&](Plan&, Task& t) { t.reads.pop_back(); }, kBody);
  refused([&](Plan& p, Task& t) { p.bodies[t.body].tf32 = true; }, "do not fit the body scaled_matmul tf32");
  Plan matmuls = small_plan();
  for (Buffer& buffer : matmuls.buffers) buffer.dtype = DType::e4m3;
  expect_refused([&] { check_structure(matmuls); }, "do not fit the body matmul; got e4m3[");
}

TEST(PlanStructure, EveryRuleRefuses) {
  const Plan good = small_plan();
  const auto first = [](const Plan& plan, Body::Kind kind) {
    for (std::size_t t = 0; t < plan.tasks.size(); ++t) {
      if (plan.bodies[plan.tasks[t].body].kind == kind) return t;
    }
    throw std::logic_error("no such task");
  };
  const std::size_t matmul = first(good, Body::Kind::matmul);
  const std::size_t reduce = first(good, Body::Kind::reduce_ranks);
  check_structure(good);
  expect_refused(changed([&](Plan& p) { p.tasks[matmul].writes[0].box.start[0] = 1000; }), "a box outside buffer");
  expect_refused(changed([&](Plan& p) { p.tasks[matmul].writes[0].buffer = -1; }), "no such buffer");
  expect_refused(changed([&](Plan& p) { p.tasks[matmul].reads[0].mode = Access::Mode::write; }),
                 "mode does not fit its list");
  expect_refused(changed([&](Plan& p) { p.tasks[reduce].waits[0].value += 1; }), "waits for more than signal");
  expect_refused(changed([&](Plan& p) { p.tasks[reduce].waits[0].signal = 12345; }), "no such signal");
  expect_refused(changed([&](Plan& p) { p.signals[p.tasks[reduce].waits[0].signal].rank = 1 - p.tasks[reduce].rank; }),
                 "of rank");
  expect_refused(changed([&](Plan& p) { p.tasks[matmul].notifies.pop_back(); }),
                 "the total is not what its notifications add up to");
  expect_refused(changed([&](Plan& p) { std::swap(p.lanes[0].tasks[0], p.lanes[0].tasks[1]); }),
                 "does not say that it is number 0");
  expect_refused(changed([&](Plan& p) { p.lanes[0].tasks.pop_back(); }), "not in exactly one lane");
  expect_refused(changed([&](Plan& p) { p.tasks[matmul].body = 77; }), "no such body");
  expect_refused(changed([&](Plan& p) { p.outputs[0].rank = 1; }), "its buffer lies on another rank");
  expect_refused(changed([&](Plan& p) { p.buffers[p.tasks[matmul].writes[0].buffer].dtype = DType::bf16; }),
                 "do not fit the body");
  expect_refused(changed([&](Plan& p) {
                   p.bodies[p.tasks[matmul].body].tf32 = true;
                   for (Buffer& buffer : p.buffers) buffer.dtype = DType::bf16;
                 }),
                 "do not fit the body matmul tf32; got bf16[");
  expect_refused(changed([&](Plan& p) {  // an output tile is written by nobody, another one twice
                   const BufferId output = p.outputs[0].buffer;
                   std::vector<Access*> writes;
                   for (Task& task : p.tasks) {
                     for (Access& write : task.writes) {
                       if (write.buffer == output) writes.push_back(&write);
                     }
                   }
                   writes[0]->box = writes[1]->box;
                 }),
                 "is written twice at");
}

TEST(PlanStructure, SlotsSignalsAndJointsAreAsTheirKindsSay) {
  const Plan good = small_plan();
  // A task that raises a signal, and that signal.
  TaskId raising = 0;
  while (good.tasks[raising].notifies.empty()) ++raising;
  const SignalId signal = good.tasks[raising].notifies[0].signal;
  expect_refused(changed([&](Plan& p) { p.buffers[0].slots = 0; }), "impossible slots");
  expect_refused(changed([&](Plan& p) {
                   p.buffers[0].slots = 13;
                   p.buffers[1].slots = 11;
                 }),
                 "memory recurs only after many runs");
  expect_refused(changed([&](Plan& p) {
                   p.signals[signal].kind = SignalInfo::Kind::set;
                   p.signals[signal].total = 2;
                 }),
                 "only signals of kind add count");
  expect_refused(changed([&](Plan& p) {
                   p.signals[signal].kind = SignalInfo::Kind::packet;
                   p.signals[signal].total = 1;
                 }),
                 "no such buffer");
  expect_refused(changed([&](Plan& p) { p.tasks[raising].joint = 0; }), "they, are on collective lanes");
  expect_refused(changed([&](Plan& p) {
                   p.tasks[raising].joint = 1 << 29;
                   p.lanes[p.tasks[raising].lane].engine = Engine::collective;
                 }),
                 "joint");
  expect_refused(changed([&](Plan& p) {
                   for (Task& task : p.tasks) {
                     if (!task.writes.empty()) task.writes.push_back(task.writes[0]);
                   }
                 }),
                 "works on overlapping boxes");
}

TEST(PlanStructure, CollectivesOfMemoryThatIsNotContiguousAreRefused) {
  const Program program =
      make_program(find_operator("gemm_all_reduce"), 2, DType::f32, std::vector<std::int64_t>{8, 8, 8});
  Plan plan = lower(program, Schedule::collective(program), Topology::parse("ranks=2,lanes=2,collective=1")).plan;
  for (Task& task : plan.tasks) {
    if (task.joint != -1) task.reads[0].box.extent[1] = task.writes[0].box.extent[1] = 3;
  }
  plan.outputs.clear();
  expect_refused([&] { check_structure(plan); }, "a collective library takes contiguous memory");
}

// Whatever is done to a file's bytes, loading it either works or throws an Error.
void fuzz(const std::string& good, int rounds, const std::function<void(const std::string&)>& load) {
  std::mt19937 random(1);
  int refused = 0;
  for (int round = 0; round < rounds; ++round) {
    std::string text = good;
    for (int edit = 0; edit <= round % 4; ++edit) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 20);
          break;
        case 2:
          text.insert(at, std::string(1 + random() % 5, "0123456789-[]{},\"e"[random() % 18]));
          break;
        default:
          text.resize(at + 1);
      }
      if (text.empty()) break;
    }
    try {
      load(text);
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::invalid) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, rounds / 2);
}

TEST(ProgramFiles, AnyBytesLoadOrAreRefused) {
  fuzz(small_program().to_json(), 5000, [](const std::string& text) { Program::from_json(text); });
}

TEST(PlanFiles, AnyBytesLoadOrAreRefused) {
  fuzz(to_json(small_plan()), 1500, [](const std::string& text) { plan_from_json(text); });
}

TEST(PlanFiles, WhatLoadsIsProvenOrRefusedAndCanBeExplored) {
  int judged = 0;
  fuzz(to_json(small_plan()), 8000, [&](const std::string& text) {
    const Plan plan = plan_from_json(text);
    const bool proven = verify(plan).proven();
    const std::optional<Finding> finding = explore(plan, static_cast<std::uint64_t>(judged++)).finding;
    EXPECT_FALSE(proven && finding) << finding->text;
  });
  EXPECT_GT(judged, 50);
}

}  // namespace
}  // namespace tileway
