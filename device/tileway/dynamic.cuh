// all_to_all_v: rows whose number is read from a table of splits, entry (r, q) what member r sends to member q.
#pragma once

#include "tileway/move.cuh"

namespace tileway {

// Sums over the table, by every thread for itself: it is small. What is out of range is recorded, and -1 returned.
template <typename Index>
struct Splits {
  const Arguments& arguments;
  const View& view;

  __device__ i64 members() const { return view.extent[0]; }
  __device__ i64 at_pair(i64 from, i64 to) const { return *at<Index>(view, from * view.stride[0] + to); }

  // Rows from `member` to the members before `end` (sends), or from those to it (receives).
  __device__ i64 before(i64 member, i64 end, bool receives, i64 bound) const {
    i64 rows = 0;
    for (i64 other = 0; other < end; ++other) {
      const i64 more = receives ? at_pair(other, member) : at_pair(member, other);
      Failure what{};
      what.member = static_cast<u32>(member);
      what.receives = receives;
      what.value = more < 0 ? more : rows + more;
      what.bound = bound;
      what.kind = more < 0 ? Failure::negative_split : more > bound - rows ? Failure::too_many_rows : Failure::none;
      if (what.kind != Failure::none) {
        report(arguments, what);
        return -1;
      }
      rows += more;
    }
    return rows;
  }
};

// `count` rows of a view, along its first dimension, from the `first` on.
template <typename Bits>
__device__ inline View some_rows(const View& view, i64 first, i64 count) {
  View some = view;
  const auto row = static_cast<u64>(view.stride[0]) * sizeof(Bits);
  some.data += static_cast<u64>(first) * row;
  some.extent[0] = count;
  // What is contiguous through all rows is less aligned from a row in between on.
  while (row % some.align != 0) some.align /= 2;
  return some;
}

template <typename Bits, typename Index>
__device__ inline void copy_rows(const Arguments& arguments) {
  const Splits<Index> splits{arguments, arguments.reads[0]};
  const View& source = arguments.reads[1];
  const View& target = arguments.writes[0];
  const i64 from = arguments.body.from;
  const i64 to = arguments.body.to;
  if (splits.before(from, splits.members(), false, source.extent[0]) < 0) return;  // all of them fit
  if (splits.before(to, splits.members(), true, target.extent[0]) < 0) return;
  const i64 rows = splits.at_pair(from, to);
  copy_view<Bits>(some_rows<Bits>(source, splits.before(from, to, false, source.extent[0]), rows),
                  some_rows<Bits>(target, splits.before(to, from, true, target.extent[0]), rows));
}

template <typename Bits, typename Index>
__device__ inline void zero_rows(const Arguments& arguments) {
  const Splits<Index> splits{arguments, arguments.reads[0]};
  const View& target = arguments.writes[0];
  const i64 used = splits.before(arguments.body.to, splits.members(), true, target.extent[0]);
  if (used < 0) return;
  const View rest = some_rows<Bits>(target, used, target.extent[0] - used);
  for_each(volume(rest), [&](u32 flat) { *at<Bits>(rest, offset_at(rest, flat)) = 0; });
}

}  // namespace tileway
