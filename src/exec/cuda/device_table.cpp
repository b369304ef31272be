#include "exec/cuda/device_table.hpp"

#include "runtime/cuda/driver.hpp"

namespace tileway::cuda {
namespace {

// One piece of device memory that holds several lists.
class Arena {
 public:
  template <typename Row>
  std::size_t place(const std::vector<Row>& rows) {
    return place_bytes(rows.size() * sizeof(Row));
  }
  std::size_t place_bytes(std::size_t bytes) {
    const std::size_t offset = bytes_;
    bytes_ = (bytes_ + bytes + 255) / 256 * 256;
    return offset;
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

template <typename Row>
void upload(Address to, const std::vector<Row>& rows) {
  if (!rows.empty()) check(driver()->MemcpyHtoD(to, rows.data(), rows.size() * sizeof(Row)), "writing the table");
}
template <typename Row>
void download(std::vector<Row>& rows, Address from) {
  if (!rows.empty()) check(driver()->MemcpyDtoH(rows.data(), from, rows.size() * sizeof(Row)), "reading the table");
}

}  // namespace

DeviceTable::DeviceTable(const Table& table, const BroughtCopies& copies, const Surroundings& surroundings) {
  Arena arena;
  const std::size_t progress = arena.place_bytes(sizeof(Progress));
  const std::size_t control = arena.place_bytes(sizeof(Control));
  const std::size_t nowhere = arena.place_bytes(sizeof(PlaceRow));
  const std::size_t gates = arena.place_bytes(table.tasks.size() * sizeof(StreamGate));
  const std::size_t events = arena.place_bytes(table.tasks.size() * sizeof(EventRow));
  const std::size_t zeroed = arena.bytes();
  std::vector<LaneRow> lanes = table.lanes;
  lanes.resize(static_cast<std::size_t>(surroundings.blocks));
  const std::size_t lane_rows = arena.place(lanes);
  const std::size_t stream_rows = arena.place(table.stream_lanes);
  const std::size_t tasks = arena.place(table.tasks);
  const std::size_t views = arena.place(table.views);
  const std::size_t waits = arena.place(table.waits);
  const std::size_t notifies = arena.place(table.notifies);
  const std::size_t bodies = arena.place(table.bodies);
  const std::size_t maps = arena.place_bytes(table.most_maps * sizeof(TensorMap));
  const std::size_t copy_counts = arena.place_bytes(sizeof(CopyCounts));
  const std::size_t copy_rows = arena.place_bytes(surroundings.most_copies * sizeof(CopyRow));
  memory_.emplace(arena.bytes());
  const Address base = memory_->address();
  launch_ = {.lanes = base + lane_rows,
             .tasks = base + tasks,
             .views = base + views,
             .waits = base + waits,
             .notifies = base + notifies,
             .bodies = base + bodies,
             .maps = base + maps,
             .runs_begun = surroundings.runs_begun,
             .progress = base + progress,
             .control = base + control,
             .failure = surroundings.failure,
             .events = surroundings.trace ? base + events : 0,
             .stream_lanes = base + stream_rows,
             .gates = base + gates,
             .copy_counts = base + copy_counts,
             .copies = base + copy_rows,
             .stream_lane_count = static_cast<u32>(table.stream_lanes.size()),
             .unused = 0};
  for (LaneRow& lane : lanes) {  // a block that only serves a stream has an empty lane
    if (lane.place == 0) lane.place = base + nowhere;
  }
  check(driver()->MemsetD8(base, 0, zeroed), "clearing the table");
  upload(launch_.lanes, lanes);
  upload(launch_.stream_lanes, table.stream_lanes);
  upload(launch_.tasks, table.tasks);
  upload(launch_.waits, table.waits);
  upload(launch_.notifies, table.notifies);
  upload(launch_.bodies, table.bodies);
  upload(launch_.control, std::vector<Control>{{.abort = 0,
                                                .unused = 0,
                                                .patience_ns = static_cast<u64>(surroundings.patience.count()),
                                                .delay_ns = static_cast<u64>(surroundings.delay.count())}});
  write_places(table, copies);
}

void DeviceTable::write_places(const Table& table, const BroughtCopies& copies) {
  upload(launch_.views, table.views);
  upload(launch_.maps, table.maps);
  upload(launch_.copy_counts,
         std::vector<CopyCounts>{{static_cast<u32>(copies.in.size()), static_cast<u32>(copies.out.size())}});
  upload(launch_.copies, copies.in);
  upload(launch_.copies + copies.in.size() * sizeof(CopyRow), copies.out);
}

Table DeviceTable::read(const Table& sizes) const {
  Table table = sizes;
  download(table.lanes, launch_.lanes);
  download(table.stream_lanes, launch_.stream_lanes);
  download(table.tasks, launch_.tasks);
  download(table.views, launch_.views);
  download(table.waits, launch_.waits);
  download(table.notifies, launch_.notifies);
  download(table.bodies, launch_.bodies);
  download(table.maps, launch_.maps);
  return table;
}

std::vector<EventRow> DeviceTable::events(std::size_t task_rows) const {
  std::vector<EventRow> events(task_rows);
  download(events, launch_.events);
  return events;
}

}  // namespace tileway::cuda
