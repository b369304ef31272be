#include "runtime/roster.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace tileway {

struct Roster::Page {
  static constexpr std::size_t kText = 4000;
  std::atomic<std::uint32_t> claimed;
  std::atomic<std::uint32_t> recorded;
  std::int32_t rank;
  std::uint32_t kind;
  char text[kText];
};

namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorKind::system, {.where = "roster of ranks", .what = "no shared memory", .got = std::strerror(errno)});
}

std::size_t bytes_of(int ranks) { return 4096 + static_cast<std::size_t>(ranks) * 2 * sizeof(std::uint32_t); }

}  // namespace

std::shared_ptr<Roster> Roster::anonymous(int ranks) {
  void* memory = mmap(nullptr, bytes_of(ranks), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) refuse();
  return std::shared_ptr<Roster>(new Roster(memory, ranks));
}

int Roster::make_file(int ranks) {
  const int fd = memfd_create("tileway-roster", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes_of(ranks))) != 0) refuse();
  return fd;
}

std::shared_ptr<Roster> Roster::mapped(int fd, int ranks) {
  void* memory = mmap(nullptr, bytes_of(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) refuse();
  return std::shared_ptr<Roster>(new Roster(memory, ranks));
}

Roster::~Roster() { munmap(memory_, bytes_of(ranks_)); }

Roster::Slot& Roster::slot(int rank) const {
  static_assert(sizeof(Page) <= 4096 && sizeof(Slot) == 2 * sizeof(std::uint32_t));
  return reinterpret_cast<Slot*>(static_cast<std::byte*>(memory_) + 4096)[rank];
}

void Roster::arrived(int rank) { slot(rank).process.store(getpid(), std::memory_order_relaxed); }
pid_t Roster::process(int rank) const { return slot(rank).process.load(std::memory_order_relaxed); }

Roster::State Roster::state(int rank) const {
  return static_cast<State>(slot(rank).state.load(std::memory_order_acquire));
}

void Roster::finished(int rank) {
  slot(rank).state.store(static_cast<std::uint32_t>(State::finished), std::memory_order_release);
}

void Roster::lost(int rank, State how, ErrorKind kind, const std::string& text) {
  if (page().claimed.exchange(1) == 0) {
    page().rank = rank;
    page().kind = static_cast<std::uint32_t>(kind);
    const std::size_t length = std::min(text.size(), Page::kText - 1);
    std::memcpy(page().text, text.data(), length);
    page().text[length] = '\0';
    page().recorded.store(1, std::memory_order_release);
  }
  slot(rank).state.store(static_cast<std::uint32_t>(how), std::memory_order_release);
}

int Roster::first_failed() const { return page().recorded.load(std::memory_order_acquire) ? page().rank : -1; }
ErrorKind Roster::first_kind() const { return static_cast<ErrorKind>(page().kind); }
std::string Roster::first_text() const { return page().text; }

void Roster::check(std::span<const int> ranks, int self) const {
  const auto gone = [&](int rank) {
    const State now = state(rank);
    return rank != self && (now == State::failed || now == State::died);
  };
  const auto lost = std::find_if(ranks.begin(), ranks.end(), gone);
  if (lost == ranks.end()) return;
  // The first failure is the cause; others that have failed since may only have noticed it.
  const int first = first_failed();
  const bool concerns_us = first != self && std::find(ranks.begin(), ranks.end(), first) != ranks.end();
  if (!concerns_us)
    throw Error(ErrorKind::lost, {.where = "rank " + std::to_string(*lost), .what = "it has failed or died"});
  constexpr std::string_view kPrefix = "[tileway] ";
  std::string text = first_text();
  if (text.starts_with(kPrefix)) text.erase(0, kPrefix.size());
  const std::string who = state(first) == State::failed ? "rank " + std::to_string(first) + " failed: " : "";
  throw Error::quoted(ErrorKind::lost, std::string(kPrefix) + who + text);
}

}  // namespace tileway
