#include "runtime/signal.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <thread>

namespace tileway {
namespace {

constexpr int kSpins = 200;
constexpr auto kSlice = std::chrono::milliseconds(5);

// Not the private futex: the word may be mapped by several processes.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::nanoseconds time) {
  const timespec limit{.tv_sec = time.count() / 1000000000, .tv_nsec = time.count() % 1000000000};
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool passed(std::uint32_t value, std::uint32_t target) { return static_cast<std::int32_t>(value - target) >= 0; }

}  // namespace

void notify(Signal& signal, std::uint32_t amount) {
  // Sequentially consistent, as are the waiter's two steps: either it sees the new value or we see it waiting.
  signal.value.fetch_add(amount, std::memory_order_seq_cst);
  if (signal.waiters.load(std::memory_order_seq_cst) > 0) futex_wake(signal.value);
}

bool reached(const Signal& signal, std::uint32_t target) {
  return passed(signal.value.load(std::memory_order_acquire), target);
}

bool wait(Signal& signal, std::uint32_t target, std::chrono::steady_clock::time_point deadline,
          const std::function<void()>& check) {
  for (int i = 0; i < kSpins; ++i) {
    if (reached(signal, target)) return true;
  }
  std::this_thread::yield();
  struct Waiting {  // counted out again also when `check` throws
    explicit Waiting(Signal& s) : signal(s) { signal.waiters.fetch_add(1, std::memory_order_seq_cst); }
    ~Waiting() { signal.waiters.fetch_sub(1, std::memory_order_seq_cst); }
    Signal& signal;
  } waiting(signal);
  while (true) {
    const std::uint32_t seen = signal.value.load(std::memory_order_seq_cst);
    if (passed(seen, target)) return true;
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return false;
    futex_wait(signal.value, seen, std::min<std::chrono::nanoseconds>(kSlice, deadline - now));
    if (reached(signal, target)) return true;
    check();
  }
}

}  // namespace tileway
