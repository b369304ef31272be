// Signals on the host: counters in shared memory.
//
// Protocol. A signal lies in the symmetric memory of the rank that waits for it. Anyone in the group may notify it: one
// atomic add with release order, after all stores that the waiter is to see. The waiter loads with acquire order until
// the counter has reached its target; then every store that a counted notifier made before notifying is visible to it.
// Counters only grow and are never reset; targets are epoch * total + value, compared by signed difference, so that
// wrap-around at 2^32 is harmless while fewer than 2^31 notifications are outstanding.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

namespace tileway {

// Eight bytes in shared memory, zero at first. `waiters` counts who may be asleep in the kernel on `value`.
struct Signal {
  std::atomic<std::uint32_t> value;
  std::atomic<std::uint32_t> waiters;
};
static_assert(sizeof(Signal) == 8);

// Adds to the counter (release) and wakes those asleep on it.
void notify(Signal& signal, std::uint32_t amount = 1);
// Whether the counter has reached the target (acquire).
bool reached(const Signal& signal, std::uint32_t target);
// Spins briefly, then sleeps, until the target is reached (true) or the deadline has passed (false). While asleep it
// calls `check` every few milliseconds; what `check` throws ends the wait.
bool wait(Signal& signal, std::uint32_t target, std::chrono::steady_clock::time_point deadline,
          const std::function<void()>& check);

}  // namespace tileway
