#include "exec/cuda/failure.hpp"

#include <fmt/format.h>

#include <string>

#include "plan/check.hpp"

namespace tileway::cuda {

Error error_of(const Failure& failure, const Plan& plan, const Board& board, std::uint32_t run, const Group& group) {
  const auto task = static_cast<TaskId>(failure.task);
  const Body& body = plan.bodies[plan.tasks[task].body];
  ErrorText text{.where = fmt::format("{}, {}", plan.name, task_name(plan, task))};
  switch (failure.kind) {
    case Failure::late: {
      const auto state = [&](int rank) { return group.process_state(rank); };
      text.what = fmt::format("signal {} was not raised within {} ms {}", failure.signal, group.deadline().count(),
                              board.root_of(static_cast<SignalId>(failure.signal), run, state));
      text.expected = std::to_string(failure.wanted);
      text.got = std::to_string(failure.seen);
      return {ErrorKind::lost, text};
    }
    case Failure::transfer:
      text.what = fmt::format("a stream did not do it within {} ms", group.deadline().count());
      if (plan.tasks[task].joint != -1) {
        const auto state = [&](int rank) { return group.process_state(rank); };
        text.what = fmt::format("the collective did not end within {} ms: {}", group.deadline().count(),
                                board.absent_from(task, run, state));
      }
      return {ErrorKind::lost, text};
    case Failure::unloaded:
      text.what = fmt::format("its operands were not loaded within {} ms", 2 * group.deadline().count());
      text.hint = "The fault is Tileway's: please report it";
      return {ErrorKind::system, text};
    case Failure::index:
      text.where = name_of(body.kind);
      text.what = "an index outside the table";
      text.expected = fmt::format("0 <= index < {}", body.rows);
      text.got = std::to_string(failure.value);
      return {ErrorKind::invalid, text};
    case Failure::negative_split:
      text.where = "all_to_all_v";
      text.what = "a negative split";
      text.got = fmt::format("{} rows of member {}", failure.value, failure.member);
      return {ErrorKind::invalid, text};
    case Failure::too_many_rows:
      text.where = "all_to_all_v";
      text.what = fmt::format("member {} {} more rows than there is room for", failure.member,
                              failure.receives != 0 ? "receives" : "sends");
      text.expected = fmt::format("at most {}", failure.bound);
      text.got = std::to_string(failure.value);
      return {ErrorKind::invalid, text};
    default:
      break;
  }
  text.what = "the kernel gave up";
  return {ErrorKind::lost, text};
}

}  // namespace tileway::cuda
