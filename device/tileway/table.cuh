// The table that a kernel follows: one rank's lanes of a plan, with addresses filled in. Included by the host, which
// writes it and can read it back into the tasks of the plan (src/exec/cuda/table.hpp), and by the device.
#pragma once

#include "tileway/types.cuh"

namespace tileway {

inline constexpr u32 kMaxViewDims = 6;
inline constexpr u32 kMaxSteps = 8;   // of an epilogue
inline constexpr u32 kMaxViews = 40;  // of a task

// The threads of a block; see team.cuh.
inline constexpr u32 kServiceThreads = 128;
inline constexpr u32 kWorkers = 256;
inline constexpr u32 kBlockThreads = kServiceThreads + kWorkers;

// A box of a buffer. Elements are row-major; strides are those of the buffer, in elements.
struct View {
  u64 data;        // address of the first element of the box, in slot 0
  u64 slot_bytes;  // from one slot of the buffer to the next
  u32 slots;       // run e works on slot e mod slots
  u32 dims;
  u32 buffer;  // in the plan; what follows is as in the plan, for whoever reads the table back
  u32 mode;
  u32 stage;
  u32 op;
  i32 partition;
  i32 slice;
  i64 extent[kMaxViewDims];
  i64 stride[kMaxViewDims];
  // The same elements as rows, for bodies that take them in row-major order; the host works it out.
  u32 align;       // bytes, a power of two, 16 at most: rows begin at multiples of it and are multiples of it long
  u32 columns;     // contiguous elements of a row, where rows are evenly apart; else 0
  u32 reciprocal;  // x / columns is __umulhi(2 * x, reciprocal) >> shift, for x < 2^31
  u32 shift;
  i64 row_stride;  // in elements
  u32 map;         // tensor map, by which TMA loads it or stores to it; or kNoMap
  u32 x;           // where it begins in what the map is of: elements along a row, and rows
  u32 y;
  u32 unused;
};
inline constexpr u32 kNoMap = ~0u;
inline constexpr u32 kMapBytes = 128;

// Holds when the counter has reached epoch * total + value.
struct WaitRow {
  u64 signal;  // address, on this rank
  u32 total;
  u32 value;
  u32 stage;   // 0 load, 1 epilogue, 2 store
  u32 system;  // whether anybody raises it at system scope
  u32 id;      // of the signal in the plan
  u32 unused;
};

struct NotifyRow {
  enum : u32 { add, set };
  u64 signal;  // address, on any rank
  u32 amount;
  u32 kind;
  u32 system;  // scope: 1 system, 0 device
  u32 after;   // 0 stores, 1 bulk stores
  u32 id;
  u32 unused;
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
  u32 kind;
  u32 tf32;
  u32 steps;  // of an epilogue, which the kernel has as code: see step_row in src/exec/cuda/table.cpp
  u32 step[kMaxSteps];
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
  i32 joint;
  u32 loaded_ahead;  // 1: a product whose operands, the first two views, are loaded by TMA
  u32 unused;
};

struct LaneRow {
  u64 place;  // PlaceRow
  u32 lane;   // in the plan
  u32 first;  // task row
  u32 tasks;
  u32 unused;
};

// What has gone wrong first, written once by whoever wins `claimed`. In host memory, which the host reads when it
// likes.
struct Failure {
  enum : u32 { none, late, transfer, unloaded, index, negative_split, too_many_rows };
  u32 claimed;
  u32 kind;    // written last
  u32 task;    // in the plan
  u32 signal;  // late: which, what was wanted and seen, relative to the run
  u32 wanted;
  u32 seen;
  u32 member;    // splits: of whom
  u32 receives;  // too_many_rows: 1 receives, 0 sends
  i64 value;     // index: the index; splits: the rows
  i64 bound;     // too_many_rows: what there is room for
};

// What host and device tell each other while a kernel runs. In device memory: it is looked at all the time.
struct Control {
  u32 abort;  // set by whoever gives up; never reset
  u32 unused;
  u64 patience_ns;  // how long a wait may last
  u64 delay_ns;     // for tests: each task begins up to so much later, at random
};

// One event of a trace, in ns of the device's clock.
struct EventRow {
  u64 wait_begin;
  u64 begin;
  u64 end;
};

// Between a stream and the block that serves it: both words are 0 between runs.
struct StreamGate {
  u32 open;  // set to 1 by the block when the task's waits are over; the stream waits for that and sets it back
  u32 unused;
  u32 done;  // set to 1 by the stream when the task is done; the block waits for that and sets it back
  u32 also_unused;
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
  u32 met;     // DeviceSignal: by each block once a meeting of all this run
  u32 unused;
};

// Between the caller's memory and what peers use too. In device memory, for a captured run knows no other: how many
// rows there are, those before a run's tasks and then those behind them.
struct CopyCounts {
  u32 in;
  u32 out;
};
struct CopyRow {
  u64 to;
  u64 from;
  u64 bytes;
};

// The argument of the kernel. All addresses are this process's.
struct Launch {
  u64 lanes;         // LaneRow, one a block
  u64 tasks;         // TaskRow
  u64 views;         // View
  u64 waits;         // WaitRow
  u64 notifies;      // NotifyRow
  u64 bodies;        // BodyRow
  u64 maps;          // tensor maps
  u64 runs_begun;    // u32, which peers may read
  u64 progress;      // Progress
  u64 control;       // Control
  u64 failure;       // Failure
  u64 events;        // EventRow by task row, or 0
  u64 stream_lanes;  // LaneRow: lanes of engines that are streams, served by a block each
  u64 gates;         // StreamGate by task row
  u64 copy_counts;   // CopyCounts
  u64 copies;        // CopyRow
  u32 stream_lane_count;
  u32 unused;
};

}  // namespace tileway
