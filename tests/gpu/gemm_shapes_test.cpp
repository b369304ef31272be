// Products with collectives of every shape: each element of each output against an independent kernel, which makes the
// operands anew from their places in the whole matrices and knows nothing of tiles, ranks' memory or engines.
//
// The first pass is on whole numbers chosen so that every partial and every sum is one that the output's type holds, so
// that a result is right or wrong; the second on numbers in [-1, 1), within what rounding may do. Outputs are poisoned
// before each. Of the combinations of ranks, engines, types and alignments each shape gets as many as TILEWAY_GEMMS
// says, others than the shapes beside it: one without it, every one with `all`.
#include <fmt/format.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "exec/cuda/variant.hpp"
#include "gpu/gemm_cases.hpp"
#include "gpu/gemm_judge.hpp"
#include "gpu/sampled_rows.hpp"
#include "runtime/cuda/compile.hpp"
#include "runtime/cuda/cublaslt.hpp"
#include "runtime/cuda/memory.hpp"
#include "runtime/cuda/nccl.hpp"
#include "tileway/error.hpp"
#include "tileway/executor.hpp"
#include "tileway/inputs.hpp"
#include "tileway/ops.hpp"
#include "tileway/schedule.hpp"

namespace tileway {
namespace {

using cuda::Address;
using cuda::check;
using cuda::driver;
using namespace testing::gemms;

// Of results.
double unit_of(DType dtype) { return dtype == DType::f32 ? 6e-8 : dtype == DType::bf16 ? 1.0 / 256 : 1.0 / 2048; }

// Tensor cores keep few bits of sums of e4m3.
float slack_of(DType operands) { return operands == DType::e4m3 ? 0x1p-8F : 4e-6F; }

std::string name_of(const Case& one) {
  return fmt::format("{} {}x{}x{} {} on {} ranks, {}, bases {}", one.op->name, one.size[0], one.size[1], one.size[2],
                     one.type.name, one.ranks, one.engines.name, one.odd ? "odd" : "aligned");
}

// Needs NVRTC but no GPU.
TEST(GemmShapesKernels, ProcessesCompile) {
  Group::spawn(1, [](Group&) {
    if (!cuda::compiler_found()) {
      fmt::print("skipped: {}\n", cuda::compiler_text());
      return;
    }
    cuda::compile(judge_source(), "gemm_shapes_test", "sm_90a");
  });
}

// Needs no GPU: the host's rows are right, and one that is not is found.
TEST(SampledRows, OfEveryOperatorAreTheInterpretersAndAWrongOneIsFound) {
  for (const char* name : kOperators) {
    for (const Type& type : kTypes) {
      for (int ranks : {1, 2, 3}) {
        const Case one{&find_operator(name), {19, 13, 24}, ranks, type, kStores};
        Program program = make_program(*one.op, ranks, type.dtype, one.size, type.precision);
        const Topology topology = Topology::parse(fmt::format("ranks={},lanes=3", ranks));
        const ProvenPlan plan = ProvenPlan::prove(lower(program, schedule_of(kStores, program), topology).plan);
        for (const bool exact : {true, false}) {
          const Bindings inputs = random_inputs(program, 1, exact ? Fill::integers : Fill::normal);
          SampledRows rows(one, program, sampled_rows(19));
          SampledRows others(one, program, sampled_rows(19));
          Group::threads(ranks, [&](Group& group) {
            HostExecutor executor(group, plan);
            for (const auto& [input, parts] : inputs) executor.set_input(input, parts[group.rank()]);
            executor.run();
            rows.take(group.rank(), executor);
            others.take(group.rank(), executor);
          });
          EXPECT_EQ(rows.expect_right(exact, name_of(one)), 3);
          others.spoil();
          EXPECT_NONFATAL_FAILURE(others.expect_right(exact, name_of(one)), "the interpreter");
        }
      }
    }
  }
}

class GemmShapes : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_FALSE(cuda::gpus().empty()) << cuda::why_not();
    for (int rank = 0; rank < kMostRanks; ++rank) {
      const std::vector<cuda::Gpu> gpus = cuda::gpus();
      judges_.push_back(std::make_unique<Judge>(gpus[static_cast<std::size_t>(rank) % gpus.size()]));
    }
  }

  // What runs, of one case. Made on the CPU, cases ahead: a large plan's proof takes longer than its run.
  struct Prepared {
    Program program;
    ProvenPlan plan;
  };
  static std::shared_ptr<const Prepared> prepare(const Case& one) {
    Program program = make_program(*one.op, one.ranks, one.type.dtype, one.size, one.type.precision);
    const int gpus = static_cast<int>(cuda::gpus().size());
    const int sharing = (one.ranks + gpus - 1) / gpus;
    const Schedule schedule = schedule_of(one.engines, program);
    Plan plan = lower(program, schedule, topology_of(one.engines, one.ranks, sharing)).plan;
    return std::make_shared<const Prepared>(std::move(program), ProvenPlan::prove(std::move(plan)));
  }

  void run(const Case& one, const std::shared_ptr<const Prepared>& prepared) {
    const Plan& plan = prepared->plan.plan();
    for (const Lane& lane : plan.lanes) {
      for (TaskId task : lane.tasks) bytes_[lane.engine] += plan.bytes_sent(plan.tasks[task]);
    }
    const cuda::KernelText text(plan, cuda::architecture_of(cuda::gpus().front()),
                                one.odd ? odd_bases(plan) : std::map<BufferId, Address>{});
    ++products_[fmt::format("{}: {}", one.type.name, text.products_text())];
    const auto rows = std::make_shared<SampledRows>(one, prepared->program, sampled_rows(one.size[0]));
    const bool compares = one.size[1] * one.size[2] <= kSmallWeights || cases_ % 64 == 0;  // the interpreter is slow
    const bool exact = cases_ % 2 == 0;
    Group::threads(one.ranks, [&](Group& group) {
      const Judge& judge = *judges_[group.rank()];
      judge.use();
      std::vector<cuda::DeviceMemory> memory;
      CudaExecutor::Options options;
      for (const auto* bindings : {&plan.inputs, &plan.outputs}) {
        for (const Plan::Binding& binding : *bindings) {
          if (!one.odd || binding.rank != group.rank()) continue;
          const Buffer& buffer = plan.buffers[binding.buffer];
          const auto elements = static_cast<std::size_t>(volume(buffer.shape));
          memory.emplace_back((elements + 1) * size_of(buffer.dtype));
          options.memory[binding.name] = memory.back().address() + size_of(buffer.dtype);
        }
      }
      CudaExecutor executor(group, prepared->plan, options);
      for (const bool whole : {true, false}) {
        const std::uint32_t seed = 2 * static_cast<std::uint32_t>(cases_) + whole;
        expect_right(one, prepared->program, group, judge, executor, seed, whole);
        if (compares && whole == exact) rows->take(group.rank(), executor);
      }
    });
    ++cases_;
    if (!compares) return;
    checks_.push_back(std::async(std::launch::async, [this, prepared, rows, exact, name = name_of(one)] {
      rows_ += rows->expect_right(exact, name);
    }));
    finish_checks(kAhead);
  }

  // Until no more than `left` are under way.
  void finish_checks(std::size_t left) {
    for (; checks_.size() > left; checks_.pop_front()) checks_.front().get();
  }

  // When the tasks of each part of the program ran on rank 0, in microseconds.
  void print_spans(const Case& one, const Program& program, const ProvenPlan& plan) {
    Group::threads(one.ranks, [&](Group& group) {
      CudaExecutor executor(group, plan, {.trace = true});
      expect_right(one, program, group, *judges_[group.rank()], executor, 1, true);
      executor.run();
      if (group.rank() != 0) return;
      std::map<std::string, std::array<double, 4>> spans;  // first begin, last end, tasks, sum of durations
      std::int64_t zero = executor.trace().front().wait_begin;
      for (const TraceEvent& event : executor.trace()) zero = std::min(zero, event.wait_begin);
      for (const TraceEvent& event : executor.trace()) {
        const Task& task = plan.plan().tasks[event.task];
        const std::string key =
            fmt::format("{} {} {}", plan.plan().origins[task.origin], name_of(plan.plan().bodies[task.body].kind),
                        name_of(plan.plan().lanes[task.lane].engine));
        const double begin = static_cast<double>(event.begin - zero) * 1e-3;
        const double end = static_cast<double>(event.end - zero) * 1e-3;
        auto [found, added] = spans.try_emplace(key, std::array<double, 4>{begin, end, 0, 0});
        found->second[0] = std::min(found->second[0], begin);
        found->second[1] = std::max(found->second[1], end);
        found->second[2] += 1;
        found->second[3] += end - begin;
      }
      for (const auto& [key, span] : spans)
        fmt::print("    {:<40} {:>8.1f} to {:>8.1f}, {:>5} tasks of {:>7.1f}\n", key, span[0], span[1], span[2],
                   span[3] / span[2]);
    });
  }

  void expect_right(const Case& one, const Program& program, Group& group, const Judge& judge, CudaExecutor& executor,
                    std::uint32_t seed, bool whole) {
    const int rank = group.rank();
    const std::string type(one.type.name);
    judge.use();
    for (const Op& op : program.ops()) {
      if (op.kind != OpKind::input) continue;
      const Part part = part_of(op.type, rank);
      if (op.name.ends_with("_scale")) {
        const bool of_x = op.name == "x_scale";
        judge.launch("fill_scales", executor.address(op.name), part.rows * part.columns,
                     of_x ? part.first_row : part.first_column, of_x ? 0U : 1U, seed, whole ? 1U : 0U);
        continue;
      }
      judge.launch("fill_" + type, executor.address(op.name), part.rows, part.columns, part.first_row,
                   part.first_column, op.name == "x" ? 0U : 1U, seed, whole ? 1U : 0U);
    }
    const TensorType& result = program.ops()[program.outputs()[0].op].type;
    const Part part = part_of(result, rank);
    const std::int64_t elements = part.rows * part.columns;
    const Address y = executor.address("y");
    const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(result.dtype);
    if (bytes > 0) check(driver()->MemsetD8(y, 0xff, bytes), "poisoning");
    check(driver()->StreamSynchronize(nullptr), "filling");  // not the context, in which others' kernels wait for this
    group.barrier("operands are there");
    executor.run();
    if (bytes == 0) return;
    const bool sums_over_ranks = program.ops()[0].type.placement.is_shard(1);
    const Compared compared{.rows = part.rows,
                            .columns = part.columns,
                            .first_row = part.first_row,
                            .first_column = part.first_column,
                            .depth = one.size[2],
                            .b_columns = one.size[1],
                            .parts = sums_over_ranks ? static_cast<std::uint32_t>(one.ranks) : 1U,
                            .seed = seed,
                            .whole = whole ? 1U : 0U,
                            .unit = static_cast<float>(unit_of(result.dtype)),
                            .slack = slack_of(one.type.dtype)};
    const Found found = judge.compare(type, y, compared, one.size[0]);
    failures_ += found.wrong > 0 ? 1 : 0;
    EXPECT_EQ(found.wrong, 0U) << fmt::format(
        "{}, {} numbers: rank {} has {} elements wrong of {}; one at ({}, {}): {} for {}, allowed {}", name_of(one),
        whole ? "whole" : "any", rank, found.wrong, elements, found.row, found.column, found.got, found.want,
        found.bound);
    elements_ += elements;
  }

  // Prints microseconds of a replay, the median of the slowest rank, checked before; and adds them to TILEWAY_TIMES.
  void time(const Case& one, const Program& program, const ProvenPlan& plan, const char* name) {
    constexpr int kReplays = 60;
    std::vector<double> medians(static_cast<std::size_t>(one.ranks));
    Group::threads(one.ranks, [&](Group& group) {
      CudaExecutor executor(group, plan);
      expect_right(one, program, group, *judges_[group.rank()], executor, 1, true);
      std::vector<double> times = executor.time_runs(kReplays);
      std::sort(times.begin(), times.end());
      medians[group.rank()] = times[kReplays / 2];
    });
    if (std::getenv("TILEWAY_SPANS")) print_spans(one, program, plan);
    // The product as each rank has it.
    const bool by_depth = program.ops()[0].type.placement.is_shard(1);
    const std::int64_t n = one.size[1] / (by_depth ? 1 : one.ranks);
    const std::int64_t k = one.size[2] / (by_depth ? one.ranks : 1);
    const double us = *std::max_element(medians.begin(), medians.end());
    fmt::print("{:<20} {:>5} x {} x {:>4} bf16  {:<38} {:>8.1f} us\n", one.op->name, one.size[0], n, k, name, us);
    std::fflush(stdout);
    if (const char* out = std::getenv("TILEWAY_TIMES")) {
      std::ofstream(out, std::ios::app) << fmt::format(
          "{{\"op\": \"{}\", \"m\": {}, \"n\": {}, \"k\": {}, \"name\": \"{}\", \"median_us\": {:.1f}}}\n",
          one.op->name, one.size[0], n, k, name, us);
    }
  }

  static constexpr int kMostRanks = 4;
  static constexpr std::int64_t kSmallWeights = 1 << 20;
  static constexpr int kMostFailures = 20;
  static constexpr std::size_t kAhead = 16;
  std::vector<std::unique_ptr<Judge>> judges_;
  std::atomic<int> failures_{0};
  std::map<Engine, std::int64_t> bytes_;
  std::map<std::string, int> products_;  // cases, by what multiplied
  std::atomic<std::int64_t> elements_{0};
  std::atomic<std::int64_t> rows_{0};  // compared with the interpreter's
  int cases_ = 0;
  std::deque<std::future<void>> checks_;  // of sampled rows, under way
};

TEST_F(GemmShapes, HowFastAProductAloneIs) {
  const Operator gemm{
      "gemm", "y = x w", {"M", "N", "K"}, {}, [](Program& p, DType dtype, std::span<const std::int64_t> size) {
        const Tensor x = p.input("x", dtype, {size[0], size[2]}, Replicate());
        p.output("y", matmul(x, p.input("w", dtype, {size[2], size[1]}, Replicate())));
      }};
  for (std::int64_t k : {512, 4096}) {
    for (std::int64_t m : {1024, 4096, 8192}) {
      const Case one{&gemm, {m, 8192, k}, 1, kBf16, kStores};
      const Program program = make_program(gemm, 1, DType::bf16, one.size);
      const Schedule schedule = Schedule::named(program, "overlapped");
      time(one, program, ProvenPlan::prove(lower(program, schedule, topology_of(kStores, 1, 1)).plan), "alone");
      if (HasFailure()) return;
    }
  }
}

TEST_F(GemmShapes, HowFast) {
  if (cuda::gpus().size() < 2) {
    fmt::print("skipped: it needs two GPUs\n");
    return;
  }
  struct Way {
    const char* name;
    Engines engines;
    int group;
  };
  const std::vector<Way> ways{{"unfused", {"stores", "unfused", 132, "copy=0"}, 1},
                              {"overlapped, stores", kStores, 1},
                              {"overlapped, stores by movers", kMovers, 1},
                              {"overlapped, copy engine", kCopies, 1},
                              {"overlapped, copy engine, groups of 4", kCopies, 4},
                              {"library, copy engine", kLibrary, 1},
                              {"fused stores", kFused, 1},
                              {"copy engine, last tile fused", kCopiesAndFused, 1}};
  for (const char* name : kOperators) {
    for (std::int64_t m : {1024, 4096, 8192}) {
      // As each rank has it: m x 8192 x 4096.
      const bool by_depth = std::string_view(name).find("reduce") != std::string_view::npos;
      Case one{&find_operator(name), {m, by_depth ? 8192 : 16384, by_depth ? 8192 : 4096}, 2, kBf16, kStores};
      Program program = make_program(*one.op, 2, one.type.dtype, one.size);
      for (const Way& way : ways) {
        if (std::string_view(way.engines.schedule) == "library" && !cuda::products_found()) continue;
        one.engines = way.engines;
        Schedule schedule = schedule_of(way.engines, program);
        for (std::size_t i = 0; i < program.ops().size(); ++i) {
          if (is_communication(program.ops()[i].kind)) schedule.group(Tensor(&program, static_cast<int>(i)), way.group);
        }
        const ProvenPlan plan = ProvenPlan::prove(lower(program, schedule, topology_of(way.engines, 2, 1)).plan);
        time(one, program, plan, way.name);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(GemmShapes, EveryElementIsRightForEveryShapeRanksEngineAndType) {
  const char* all = std::getenv("TILEWAY_GEMMS");
  const bool every = all != nullptr && std::string_view(all) == "all";
  const std::size_t some = every || all == nullptr ? 1 : std::strtoull(all, nullptr, 10);
  std::vector<Case> combinations;
  for (int ranks : {2, 3, 4}) {
    for (const Type& type : kTypes) {
      // Copy engines copy from one GPU to another.
      const bool own_gpus = ranks <= static_cast<int>(cuda::gpus().size());
      std::vector<Engines> choices{kStores, kMovers, kFused};
      if (own_gpus) choices.push_back(kCopies);
      if (own_gpus) choices.push_back(kCopiesAndFused);
      if (own_gpus && cuda::collectives_found()) choices.push_back(kNccl);
      if (cuda::products_found() && type.dtype != DType::e4m3)
        choices.push_back(own_gpus ? kLibrary : kLibraryAndStores);
      for (const Engines& engines : choices) {
        for (const bool odd : {false, true}) combinations.push_back({nullptr, {}, ranks, type, engines, odd});
      }
    }
  }
  std::vector<Case> cases;
  std::map<std::size_t, std::set<std::pair<std::int64_t, std::int64_t>>> sides_met;  // by combination
  std::size_t turn = 0;
  for (const char* name : kOperators) {
    for (std::int64_t m : {1, 16, 128, 1000, 1024, 4096, 8192}) {
      for (std::int64_t n : {1, 7, 97, 1001, 4096, 8192}) {
        for (std::int64_t k : {1, 7, 97, 1001, 4096, 8192}) {
          for (std::size_t next = 0; next < (every ? combinations.size() : some); ++next) {
            // Each shape takes others than the shapes beside it, and each combination meets other sides every time.
            const std::size_t c = (turn * 53 + turn / 36 * 19 + next * 31) % combinations.size();
            sides_met[c].insert({n, k});
            cases.push_back(combinations[c]);
            cases.back().op = &find_operator(name);
            cases.back().size = {m, n, k};
          }
          ++turn;
        }
      }
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  std::deque<std::future<std::shared_ptr<const Prepared>>> prepared;
  std::size_t ahead = 0;
  for (std::size_t i = 0; i < cases.size() && failures_ < kMostFailures; ++i) {
    const Case& one = cases[i];
    for (; ahead < cases.size() && prepared.size() < kAhead; ++ahead)
      prepared.push_back(std::async(std::launch::async, prepare, cases[ahead]));
    try {
      auto next = std::move(prepared.front());
      prepared.pop_front();
      run(one, next.get());
    } catch (const std::exception& error) {
      ADD_FAILURE() << name_of(one) << ": " << error.what();
      ++failures_;
    }
    if (i + 1 < cases.size() && cases[i + 1].op == one.op) continue;
    fmt::print("{}: {} cases so far, {:.0f} s\n", one.op->name, i + 1,
               std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    std::fflush(stdout);
  }
  finish_checks(0);
  std::size_t fewest = 36;
  for (std::size_t c = 0; c < combinations.size(); ++c) fewest = std::min(fewest, sides_met[c].size());
  fmt::print("{} combinations, each with {} of 36 pairs of N and K at least\n", combinations.size(), fewest);
  RecordProperty("combinations", fmt::to_string(combinations.size()));
  RecordProperty("pairs_of_sides_with_each", fmt::to_string(fewest));
  EXPECT_GE(fewest, 6U);
  fmt::print("{} cases, {:.1f}e9 elements, {} rows against the interpreter; bytes sent:", cases_,
             static_cast<double>(elements_) * 1e-9, rows_.load());
  for (const auto& [engine, bytes] : bytes_) {
    fmt::print(" {} {:.2f} GB", name_of(engine), static_cast<double>(bytes) * 1e-9);
    RecordProperty(fmt::format("bytes_sent_by_{}", name_of(engine)), fmt::to_string(bytes));
  }
  fmt::print("\n");
  for (const auto& [products, cases] : products_) {
    fmt::print("  {} cases: {}\n", cases, products);
    RecordProperty(products, cases);
  }
  RecordProperty("cases", cases_);
  RecordProperty("elements", fmt::to_string(elements_.load()));
  RecordProperty("rows_against_the_interpreter", fmt::to_string(rows_.load()));
}

}  // namespace
}  // namespace tileway
