#include "runtime/signal.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>

#include "tileway/error.hpp"
#include "tileway/group.hpp"

namespace tileway {
namespace {

using Clock = std::chrono::steady_clock;

const auto kNothing = [] {};

std::unique_ptr<Signal> fresh(std::uint32_t value) {
  auto signal = std::make_unique<Signal>();
  signal->value = value;
  signal->waiters = 0;
  return signal;
}

Clock::time_point soon() { return Clock::now() + std::chrono::seconds(20); }

TEST(Signal, ThreadsSeeEverythingThatWasWrittenBeforeANotification) {
  constexpr std::uint32_t kRounds = 20000;
  const auto ready = fresh(0);
  const auto consumed = fresh(0);
  std::uint32_t data[16] = {};  // not atomic: only the signals order it
  std::thread producer([&] {
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      if (!wait(*consumed, round - 1, soon(), kNothing)) return;
      for (std::uint32_t& word : data) word = round;
      notify(*ready);
    }
  });
  for (std::uint32_t round = 1; round <= kRounds; ++round) {
    ASSERT_TRUE(wait(*ready, round, soon(), kNothing));
    for (std::uint32_t word : data) ASSERT_EQ(word, round);
    notify(*consumed);
  }
  producer.join();
}

TEST(Signal, ThreadsCountAcrossTheWrapAround) {
  for (const std::uint32_t start : {0x80000000U - 100, 0xffffffffU - 99}) {
    const auto signal = fresh(start);
    EXPECT_FALSE(reached(*signal, start + 1));
    std::thread notifier([&] {
      for (int i = 0; i < 200; ++i) notify(*signal);
    });
    for (std::uint32_t i = 1; i <= 200; ++i) ASSERT_TRUE(wait(*signal, start + i, soon(), kNothing));
    notifier.join();
    EXPECT_TRUE(reached(*signal, start + 200));
    EXPECT_FALSE(reached(*signal, start + 201));
  }
}

TEST(Signal, AWaitEndsAtItsDeadline) {
  const auto signal = fresh(0);
  const auto begin = Clock::now();
  EXPECT_FALSE(wait(*signal, 1, begin + std::chrono::milliseconds(50), kNothing));
  EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(50));
  EXPECT_EQ(signal->waiters, 0U);
}

TEST(Signal, WhatTheCheckThrowsEndsTheWait) {
  const auto signal = fresh(0);
  EXPECT_THROW(wait(*signal, 1, soon(), [] { throw std::runtime_error("stop"); }), std::runtime_error);
  EXPECT_EQ(signal->waiters, 0U);
}

TEST(Signal, ProcessesPassDataBackAndForth) {
  constexpr std::uint32_t kRounds = 5000;
  Group::spawn(2, [](Group& group) {
    const SymmetricMemory memory = group.allocate(4096);
    const auto signal_on = [&](int rank) -> Signal& { return *reinterpret_cast<Signal*>(memory.on(rank).data()); };
    const int self = group.rank();
    const int peer = 1 - self;
    for (std::uint32_t round = 1; round <= kRounds; ++round) {
      if (self == 0) {
        std::memcpy(memory.on(1).data() + 64, &round, sizeof(round));
        notify(signal_on(1));
      }
      if (!wait(signal_on(self), round, soon(), [&] { group.check_members(); })) throw std::runtime_error("too late");
      std::uint32_t seen = 0;
      std::memcpy(&seen, memory.on(self).data() + 64, sizeof(seen));
      if (seen != round) throw std::runtime_error("a stale word");
      if (self == 1) {
        std::memcpy(memory.on(0).data() + 64, &round, sizeof(round));
        notify(signal_on(peer));
      }
    }
  });
}

}  // namespace
}  // namespace tileway
