// Inputs and outputs in memory of the caller's.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpu/kernels.hpp"
#include "runtime/cuda/memory.hpp"
#include "support/run.hpp"
#include "tileway/error.hpp"
#include "tileway/ops.hpp"

namespace tileway {
namespace {

using cuda::Address;
using cuda::check;
using cuda::DeviceMemory;
using cuda::driver;

constexpr int kRanks = 2;

struct Prepared {
  Program program;
  ProvenPlan plan;
};
Prepared prepare(const char* op, const std::vector<std::int64_t>& size) {
  Program program = make_program(find_operator(op), kRanks, DType::bf16, size);
  ProvenPlan plan =
      ProvenPlan::prove(lower(program, Schedule::overlapped(program), testing::small_topology(kRanks, 5, 0)).plan);
  return {std::move(program), std::move(plan)};
}

// On the device, `shift` bytes behind an aligned address.
class Copy {
 public:
  Copy(const Array& array, std::size_t shift) : memory_(array.bytes() + shift), shift_(shift) {
    check(driver()->MemcpyHtoD(address(), array.data(), array.bytes()), "copying");
    check(driver()->StreamSynchronize(nullptr), "copying");
  }
  Address address() const { return memory_.address() + shift_; }
  void read(Array& array) const { check(driver()->MemcpyDtoH(array.data(), address(), array.bytes()), "copying"); }

 private:
  DeviceMemory memory_;
  std::size_t shift_;
};

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid) << error.what();
    return error.what();
  }
  return {};
}

class CudaMemory : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_FALSE(cuda::gpus().empty()) << cuda::why_not(); }
};

TEST_F(CudaMemory, OfTheCallerIsReadAndWrittenWhereverItLiesAndWhereverItMovesTo) {
  for (const char* op : {"gemm_all_reduce", "gemm_reduce_scatter", "all_gather_gemm", "gemm_all_to_all"}) {
    for (const std::size_t shift : {std::size_t{0}, std::size_t{2}}) {
      const Prepared it = prepare(op, {136, 264, 144});
      std::vector<Bindings> inputs;
      std::vector<Bindings> expected;
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        inputs.push_back(random_inputs(it.program, seed, Fill::integers));
        Bindings copy = inputs.back();
        expected.push_back(interpret(it.program, copy));
      }
      Group::threads(kRanks, [&](Group& group) {
        const int rank = group.rank();
        const cuda::Device device(rank % static_cast<int>(cuda::gpus().size()));
        device.use();
        std::vector<std::map<std::string, std::unique_ptr<Copy>>> copies(inputs.size());
        std::vector<std::unique_ptr<Copy>> outputs;
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          for (const auto& [name, parts] : inputs[i])
            copies[i].emplace(name, std::make_unique<Copy>(parts[rank], shift));
          const Array& y = expected[i].at("y")[rank];  // now where TMA can store it, now where it cannot
          outputs.push_back(std::make_unique<Copy>(Array(y.dtype(), y.shape()), i % 2 == 0 ? shift : 2 - shift));
        }
        CudaExecutor::Options options;
        for (const auto& [name, copy] : copies[0]) options.memory[name] = copy->address();
        options.memory["y"] = outputs[0]->address();
        CudaExecutor executor(group, it.plan, options);
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          if (i > 0) {
            for (const auto& [name, copy] : copies[i]) executor.bind(name, copy->address());
            executor.bind("y", outputs[i]->address());
          }
          EXPECT_EQ(executor.address("y"), outputs[i]->address());
          EXPECT_EQ(executor.fingerprint_on_device(), it.plan.fingerprint());
          executor.run();
        }
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          Array y = expected[i].at("y")[rank];
          outputs[i]->read(y);
          EXPECT_TRUE(y == expected[i].at("y")[rank]) << op << ", run " << i << ", rank " << rank << ", " << shift;
        }
      });
    }
  }
}

TEST_F(CudaMemory, AnOutputIsTheNextOnesInputWithoutACopy) {
  const Prepared first = prepare("gemm_reduce_scatter", {136, 144, 72});
  const Prepared second = prepare("all_gather_gemm", {136, 264, 144});
  Bindings inputs = random_inputs(first.program, 1, Fill::integers);
  Bindings next = random_inputs(second.program, 2, Fill::integers);
  next.at("x") = interpret(first.program, inputs).at("y");
  const Bindings expected = interpret(second.program, next);
  Group::threads(kRanks, [&](Group& group) {
    const int rank = group.rank();
    CudaExecutor a(group, first.plan);
    CudaExecutor b(group, second.plan, {.memory = {{"x", a.address("y")}}});
    for (const auto& [name, parts] : inputs) a.set_input(name, parts[rank]);
    b.set_input("w", next.at("w")[rank]);
    const cuda::OwnStream stream;
    group.barrier("ready");
    a.enqueue(stream.get());
    b.enqueue(stream.get());
    a.synchronize(stream.get());
    b.synchronize(stream.get());
    EXPECT_TRUE(b.get("y") == expected.at("y")[rank]) << rank;
  });
}

// Where ranks share a GPU, what one has in its stream behind a kernel must not keep another's from beginning: streams
// share queues. Many executors, for it depends on which streams they get.
TEST_F(CudaMemory, OfResultsThatPeersWriteKeepsNoRankThatSharesAGpuFromBeginning) {
  constexpr int kSharing = 4;
  const Program program =
      make_program(find_operator("gemm_all_reduce"), kSharing, DType::f16, std::vector<std::int64_t>{13, 7, 9});
  const ProvenPlan plan =
      ProvenPlan::prove(lower(program, Schedule::overlapped(program), testing::small_topology(kSharing, 5, 0)).plan);
  const Bindings inputs = random_inputs(program, 1, Fill::integers);
  Bindings copy = inputs;
  const Bindings expected = interpret(program, copy);
  for (int round = 0; round < 300; ++round) {
    Group::threads(kSharing, [&](Group& group) {
      const int rank = group.rank();
      group.set_deadline(std::chrono::milliseconds(5000));
      const cuda::Device device(rank % static_cast<int>(cuda::gpus().size()));
      device.use();
      Array y(DType::f16, expected.at("y")[rank].shape());
      const Copy result(y, 2);
      CudaExecutor executor(group, plan, {.memory = {{"y", result.address()}}});
      for (const auto& [name, parts] : inputs) executor.set_input(name, parts[rank]);
      group.barrier("all begin together");
      executor.run();
      executor.run();
      result.read(y);
      EXPECT_TRUE(y == expected.at("y")[rank]) << "round " << round << ", rank " << rank;
    });
    ASSERT_FALSE(HasFailure());
  }
}

TEST_F(CudaMemory, ThatCannotBeUsedIsRefusedByName) {
  const Prepared it = prepare("gemm_all_reduce", {136, 264, 144});
  const Bindings inputs = random_inputs(it.program, 1, Fill::integers);
  Bindings copy = inputs;
  const Bindings expected = interpret(it.program, copy);
  Group::threads(kRanks, [&](Group& group) {
    const int rank = group.rank();
    CudaExecutor executor(group, it.plan);
    const Address before = executor.address("x");
    const Copy odd(inputs.at("x")[rank], 2);
    std::vector<float> host(1 << 16);
    const auto bind = [&](const char* name, Address address) { return refusal([&] { executor.bind(name, address); }); };
    EXPECT_NE(bind("x", reinterpret_cast<Address>(host.data())).find("not memory of the rank's GPU"),
              std::string::npos);
    EXPECT_NE(bind("x", odd.address() + 1).find("between two elements"), std::string::npos);
    EXPECT_NE(bind("x", odd.address()).find("Options::memory"), std::string::npos);
    EXPECT_NE(bind("z", odd.address()).find("holds no input or output 'z'"), std::string::npos);
    EXPECT_EQ(executor.address("x"), before);
    for (const auto& [name, parts] : inputs) executor.set_input(name, parts[rank]);
    executor.run();
    EXPECT_TRUE(executor.get("y") == expected.at("y")[rank]);
  });
}

}  // namespace
}  // namespace tileway
