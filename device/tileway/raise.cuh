// How a block says that tasks are done.
#pragma once

#include "tileway/fetch.cuh"

namespace tileway {

// Of a lane, for who raises its tasks' notifications: those of the next task, read before there is anything to raise.
class Notifications {
 public:
  __device__ __forceinline__ Notifications(const Run& run, const LaneRow& lane) : run_(run), lane_(lane) { look(); }

  __device__ __forceinline__ bool ended() const { return next_ >= lane_.tasks; }
  __device__ __forceinline__ u32 next() const { return next_; }
  // A whole warp; then to the next task.
  __device__ __forceinline__ void raise_next() {
    const u32 self = threadIdx.x % 32;
    if (self < count_) raise(run_, own_);
    for (u32 n = self + 32; n < count_; n += 32) raise(run_, rows_[n]);
    ++next_;
    look();
  }
  __device__ __forceinline__ void give_up() { next_ = lane_.tasks; }

 private:
  __device__ __forceinline__ void look() {
    if (ended()) return;
    const TaskRow& row = run_.task(lane_, next_);
    count_ = row.notifies;
    rows_ = run_.rows<NotifyRow>(run_.launch.notifies) + row.first_notify;
    if (threadIdx.x % 32 < count_) own_ = rows_[threadIdx.x % 32];
  }

  const Run& run_;
  const LaneRow& lane_;
  u32 next_ = 0;
  u32 count_ = 0;
  const NotifyRow* rows_ = nullptr;
  NotifyRow own_{};
};

// The next task of a stream's lane, once its gate is open. One thread looks.
class StreamWatch {
 public:
  enum : u32 { not_yet, done, never };

  __device__ __forceinline__ StreamWatch(const Run& run, const LaneRow& lane, Block& block)
      : run_(run), lane_(lane), block_(block) {}

  __device__ __forceinline__ u32 look(u32 task) {
    u32* done_word = &reinterpret_cast<StreamGate*>(run_.launch.gates)[lane_.first + task].done;
    const bool open = read_count(&block_.opened) > task;
    if (open && load(reinterpret_cast<const SystemSignal*>(done_word)) == 1) {
      *reinterpret_cast<volatile u32*>(done_word) = 0;
      looks_ = 0;
      return done;
    }
    constexpr u32 kLooks = 64;
    if (++looks_ % kLooks != 0) return not_yet;
    u32* abort = &run_.control()->abort;
    if (given_up(abort)) return never;
    if (looks_ == kLooks || !open) since_ = now_ns();
    if (now_ns() - since_ < run_.control()->patience_ns) return not_yet;
    Failure what{};
    what.kind = Failure::transfer;
    what.task = run_.task(lane_, task).task;
    report(run_.failure(), abort, what);
    return never;
  }

 private:
  const Run& run_;
  const LaneRow& lane_;
  Block& block_;
  u32 looks_ = 0;
  u64 since_ = 0;
};

// A service warp: stores what the workers have staged, and raises the notifications of the tasks that are done: by the
// workers, and by the stream that the block serves; of each lane in its order.
template <typename Storer>
__device__ __forceinline__ void raise_done(const Run& run, const LaneRow& lane, const LaneRow& served, Block& block,
                                           Storer storer) {
  auto* events = reinterpret_cast<EventRow*>(run.launch.events);
  const u32 self = threadIdx.x % 32;
  Notifications workers(run, lane);
  Notifications stream(run, served);
  StreamWatch watch(run, served, block);
  while (!workers.ended() || !stream.ended()) {
    if (!workers.ended()) {
      const u32 counted = __shfl_sync(0xffffffffu, self == 0 ? read_count(&block.done) : 0, 0);
      const bool done = counted > workers.next();  // then everything that it stages is staged
      storer.take(workers.next());
      if (done) {
        storer.await_written();
        const bool drained = block.drained != 0;
        if (self == 0) raise_count(&block.written, drained ? lane.tasks : workers.next() + 1);
        if (drained)
          workers.give_up();
        else
          workers.raise_next();
      }
    }
    if (stream.ended()) continue;
    const u32 seen = __shfl_sync(0xffffffffu, self == 0 ? watch.look(stream.next()) : StreamWatch::not_yet, 0);
    if (seen == StreamWatch::never) stream.give_up();
    if (seen != StreamWatch::done) continue;
    if (self == 0 && events != nullptr) events[served.first + stream.next()].end = now_ns();
    stream.raise_next();
  }
}

}  // namespace tileway
