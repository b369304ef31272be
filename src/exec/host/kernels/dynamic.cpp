// all_to_all_v: rows whose number is read from a table of splits, entry (r, q) what member r sends to member q.
#include <cstring>
#include <string>

#include "exec/host/kernels/all.hpp"
#include "exec/host/kernels/rows.hpp"

namespace tileway::host {
namespace {

class Splits {
 public:
  explicit Splits(const View& view) : view_(view) {}
  std::int64_t members() const { return view_.extent[0]; }

  std::int64_t at_pair(std::int64_t from, std::int64_t to) const {
    const std::int64_t offset = from * view_.strides[0] + to;
    const std::int64_t rows =
        view_.dtype == DType::i32 ? *at<std::int32_t>(view_, offset) : *at<std::int64_t>(view_, offset);
    TW_REQUIRE(
        rows >= 0, ErrorKind::invalid, .where = "all_to_all_v", .what = "a negative split",
        .got = std::to_string(rows) + " rows from member " + std::to_string(from) + " to member " + std::to_string(to));
    return rows;
  }
  // Rows that member `from` sends to the members before `to`.
  std::int64_t sent_before(std::int64_t from, std::int64_t to, std::int64_t bound) const {
    std::int64_t rows = 0;
    for (std::int64_t q = 0; q < to; ++q) rows = add(rows, at_pair(from, q), bound, "sends", from);
    return rows;
  }
  // Rows that member `to` receives from the members before `from`.
  std::int64_t received_before(std::int64_t from, std::int64_t to, std::int64_t bound) const {
    std::int64_t rows = 0;
    for (std::int64_t r = 0; r < from; ++r) rows = add(rows, at_pair(r, to), bound, "receives", to);
    return rows;
  }

 private:
  static std::int64_t add(std::int64_t rows, std::int64_t more, std::int64_t bound, const char* verb,
                          std::int64_t member) {
    TW_REQUIRE(more <= bound - rows, ErrorKind::invalid, .where = "all_to_all_v",
               .what = "member " + std::to_string(member) + " " + verb + " more rows than there is room for",
               .expected = "at most " + std::to_string(bound),
               .got = std::to_string(rows) + " + " + std::to_string(more));
    return rows + more;
  }
  const View& view_;
};

}  // namespace

void copy_rows(const Arguments& arguments) {
  const Splits splits(arguments.reads[0]);
  const View& source = arguments.reads[1];
  const View& target = arguments.writes[0];
  const std::int64_t from = arguments.body.from;
  const std::int64_t to = arguments.body.to;
  splits.sent_before(from, splits.members(), source.extent[0]);  // all of them fit
  splits.received_before(splits.members(), to, target.extent[0]);
  View read = source;
  View write = target;
  const auto element = static_cast<std::int64_t>(size_of(source.dtype));
  read.data += splits.sent_before(from, to, source.extent[0]) * source.strides[0] * element;
  write.data += splits.received_before(from, to, target.extent[0]) * target.strides[0] * element;
  read.extent[0] = write.extent[0] = splits.at_pair(from, to);
  const View reads[] = {read};
  const View writes[] = {write};
  copy({arguments.body, reads, writes});
}

void zero_rows(const Arguments& arguments) {
  const Splits splits(arguments.reads[0]);
  const View& target = arguments.writes[0];
  View rest = target;
  const std::int64_t used = splits.received_before(splits.members(), arguments.body.to, target.extent[0]);
  const auto element = static_cast<std::int64_t>(size_of(target.dtype));
  rest.data += used * target.strides[0] * element;
  rest.extent[0] -= used;
  for (RowWalk<1> walk(rest.extent, {&rest}); !walk.done(); walk.next()) {
    std::memset(rest.data + walk.offset(0) * element, 0, static_cast<std::size_t>(row_length(rest) * element));
  }
}

}  // namespace tileway::host
