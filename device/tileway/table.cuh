// The table that a kernel follows: one rank's lanes of a plan, with addresses filled in. Included by the host, which
// writes it and can read it back into the tasks of the plan (src/exec/cuda/table.hpp), and by the device.
#pragma once

#include "tileway/types.cuh"

namespace tileway {

inline constexpr u32 kMaxViewDims = 6;

// A box of a buffer. Elements are row-major; strides are those of the buffer, in elements.
struct View {
  u64 data;        // address of the first element of the box, in slot 0
  u64 slot_bytes;  // from one slot of the buffer to the next
  u32 slots;       // run e works on slot e mod slots
  u32 dims;
  i64 extent[kMaxViewDims];
  i64 stride[kMaxViewDims];
};

// Holds when the counter has reached epoch * total + value.
struct WaitRow {
  u64 signal;  // address, on this rank
  u32 total;
  u32 value;
  u32 stage;  // 0 load, 1 epilogue, 2 store
  u32 id;     // of the signal in the plan
};

struct NotifyRow {
  enum : u32 { add, set, gate };
  u64 signal;  // address, on any rank
  u32 amount;
  u32 kind;
  u32 system;  // scope: 1 system, 0 device
  u32 id;
};

// What a body is told besides its views; fields as in the plan.
struct BodyRow {
  double value;
  i64 dims[kMaxViewDims];
  i64 first;
  i64 rows;
  u32 function;
  u32 op;  // 0 sum, 1 max, 2 min, 3 mean
  i32 dim;
  i32 from;
  i32 to;
  u32 unused;
};

struct TaskRow {
  u32 task;     // in the plan
  u32 variant;  // which kernel: a case of the generated switch
  u32 body;     // index of the BodyRow
  u32 reads;    // views: first the reads, then the writes
  u32 writes;
  u32 views;  // index of the first
  u32 waits;  // number and index of the first
  u32 first_wait;
  u32 notifies;
  u32 first_notify;
  u32 after_previous;
  u32 unused;
};

struct LaneRow {
  u32 lane;   // in the plan
  u32 first;  // task row
  u32 tasks;
  u32 unused;
};

// What has gone wrong first, written once by whoever wins `claimed`.
struct Failure {
  enum : u32 { none, late, index, negative_split, too_many_rows };
  u32 claimed;
  u32 kind;  // written last
  u32 task;
  u32 signal;    // late
  u32 wanted;    // late: relative to the run
  u32 seen;      // late
  u32 member;    // splits: of whom, and
  u32 receives;  // too_many_rows: 1 receives, 0 sends
  i64 value;     // index: the index; splits: the rows
  i64 bound;     // too_many_rows: what there is room for
};

// In host memory that the device sees.
struct Control {
  u32 abort;  // set by whoever gives up, host or device; never reset while a kernel runs
  u32 unused;
  u64 patience_ns;  // how long a wait may last
  Failure failure;
};

// One event of a trace, in ns of the device's clock.
struct EventRow {
  u64 wait_begin;
  u64 begin;
  u64 end;
};

// Where a lane is, for whoever wonders why a signal does not come: see PlanLayout.
struct PlaceRow {
  u32 run;
  u32 index;
  i32 signal;
  u32 unused;
};

// Of one rank, in its own memory.
struct Progress {
  u32 runs;    // that have ended: the epoch of the next
  u32 blocks;  // that have ended this run
};

// The argument of the kernel. All addresses are this process's.
struct Launch {
  u64 lanes;      // LaneRow, one a block
  u64 tasks;      // TaskRow
  u64 views;      // View
  u64 waits;      // WaitRow
  u64 notifies;   // NotifyRow
  u64 bodies;     // BodyRow
  u64 places;     // PlaceRow, by block
  u64 runs_begun; // u32, which peers may read
  u64 progress;   // Progress
  u64 control;    // Control
  u64 events;     // EventRow by task row, or 0
};

}  // namespace tileway
