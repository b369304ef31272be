// The file format of plans.
#include <array>

#include "base/json.hpp"
#include "plan/names.hpp"
#include "tileway/error.hpp"
#include "tileway/plan.hpp"

namespace tileway {
namespace {

using json::Reader;
using json::Value;

constexpr int kFormat = 1;
constexpr std::int64_t kMany = 1 << 30;
constexpr std::int64_t kMaxSlots = 16;

template <typename Enum, std::size_t n>
Enum parse_in(const std::array<std::string_view, n>& names, const Reader& reader) {
  const std::string text = reader.text();
  std::string expected;
  for (std::size_t i = 0; i < n; ++i) {
    if (names[i] == text) return static_cast<Enum>(i);
    expected += (i ? ", " : "") + std::string(names[i]);
  }
  reader.refuse("one of " + expected);
}

std::int32_t index_from(const Reader& reader) { return static_cast<std::int32_t>(reader.integer(-1, kMany)); }

std::string bounded_text(const Reader& reader) {
  std::string text = reader.text();
  if (text.size() > 4096) reader.refuse("at most 4096 characters");
  return text;
}

Value access_to_json(const Access& access) {
  Value out{
      {"buffer", access.buffer}, {"start", json::from(access.box.start)}, {"extent", json::from(access.box.extent)}};
  out["mode"] = name_in(kModeNames, access.mode);
  out["stage"] = name_in(kStageNames, access.stage);
  if (access.mode == Access::Mode::accumulate) out["op"] = name_of(access.op);
  if (access.partition != -1) {
    out["partition"] = access.partition;
    out["slice"] = access.slice;
  }
  return out;
}

Access access_from_json(const Reader& reader) {
  reader.only({"buffer", "start", "extent", "mode", "stage", "op", "partition", "slice"});
  Access access;
  access.buffer = index_from(reader.at("buffer"));
  access.box = {reader.at("start").dims(), reader.at("extent").dims()};
  access.mode = parse_in<Access::Mode>(kModeNames, reader.at("mode"));
  access.stage = parse_in<Stage>(kStageNames, reader.at("stage"));
  if (reader.has("op")) access.op = reader.at("op").name(parse_reduce_op);
  if (reader.has("partition")) access.partition = index_from(reader.at("partition"));
  if (reader.has("slice")) access.slice = index_from(reader.at("slice"));
  return access;
}

Value task_to_json(const Task& task) {
  Value out{
      {"rank", task.rank}, {"lane", task.lane}, {"index", task.index}, {"body", task.body}, {"origin", task.origin}};
  if (task.joint != -1) out["joint"] = task.joint;
  if (task.after_previous) out["after_previous"] = true;
  for (const auto& [key, list] : {std::pair{"reads", &task.reads}, std::pair{"writes", &task.writes}}) {
    out[key] = Value::array();
    for (const Access& access : *list) out[key].push_back(access_to_json(access));
  }
  out["waits"] = Value::array();
  for (const Wait& wait : task.waits) {
    out["waits"].push_back(
        {{"signal", wait.signal}, {"value", wait.value}, {"stage", name_in(kStageNames, wait.stage)}});
  }
  out["notifies"] = Value::array();
  for (const Notify& notify : task.notifies) {
    out["notifies"].push_back({{"signal", notify.signal},
                               {"amount", notify.amount},
                               {"scope", name_in(kScopeNames, notify.scope)},
                               {"after", name_in(kAfterNames, notify.after)}});
  }
  return out;
}

Task task_from_json(const Reader& reader) {
  reader.only(
      {"rank", "lane", "index", "body", "origin", "joint", "after_previous", "reads", "writes", "waits", "notifies"});
  Task task;
  task.rank = index_from(reader.at("rank"));
  task.lane = index_from(reader.at("lane"));
  task.index = index_from(reader.at("index"));
  task.body = index_from(reader.at("body"));
  task.origin = index_from(reader.at("origin"));
  if (reader.has("joint")) task.joint = index_from(reader.at("joint"));
  if (reader.has("after_previous")) task.after_previous = reader.at("after_previous").boolean();
  for (const Reader& item : reader.at("reads").items()) task.reads.push_back(access_from_json(item));
  for (const Reader& item : reader.at("writes").items()) task.writes.push_back(access_from_json(item));
  for (const Reader& item : reader.at("waits").items()) {
    item.only({"signal", "value", "stage"});
    task.waits.push_back({index_from(item.at("signal")), static_cast<std::uint32_t>(item.at("value").integer(0, kMany)),
                          parse_in<Stage>(kStageNames, item.at("stage"))});
  }
  for (const Reader& item : reader.at("notifies").items()) {
    item.only({"signal", "amount", "scope", "after"});
    task.notifies.push_back({index_from(item.at("signal")),
                             static_cast<std::uint32_t>(item.at("amount").integer(0, kMany)),
                             parse_in<Notify::Scope>(kScopeNames, item.at("scope")),
                             parse_in<Notify::After>(kAfterNames, item.at("after"))});
  }
  return task;
}

Value step_to_json(const Step& step) {
  Value out{{"function", step.cast ? "cast" : name_of(step.function)}, {"dtype", name_of(step.dtype)}};
  for (std::int32_t operand : step.operands) {
    if (operand != Step::kNone) out["operands"].push_back(operand);
  }
  return out;
}

Step step_from_json(const Reader& reader) {
  reader.only({"function", "dtype", "operands"});
  Step step;
  step.cast = reader.at("function").text() == "cast";
  if (!step.cast) step.function = reader.at("function").name(parse_function);
  step.dtype = reader.at("dtype").name(parse_dtype);
  const std::vector<Reader> operands = reader.at("operands").items();
  if (operands.size() > step.operands.size()) reader.at("operands").refuse("at most three operands");
  for (std::size_t i = 0; i < operands.size(); ++i)
    step.operands[i] = static_cast<std::int32_t>(operands[i].integer(Step::kSoFar, kMany));
  return step;
}

Value body_to_json(const Body& body) {
  Value out{{"kind", name_of(body.kind)}};
  const Body fresh;
  if (body.function != fresh.function) out["function"] = name_of(body.function);
  if (body.op != fresh.op) out["op"] = name_of(body.op);
  if (body.value != fresh.value) out["value"] = body.value;
  if (body.dim != fresh.dim) out["dim"] = body.dim;
  if (!body.dims.empty()) out["dims"] = json::from(body.dims);
  if (body.first != fresh.first) out["first"] = body.first;
  if (body.rows != fresh.rows) out["rows"] = body.rows;
  if (body.from != fresh.from) out["from"] = body.from;
  if (body.to != fresh.to) out["to"] = body.to;
  if (body.tf32) out["tf32"] = true;
  for (const Step& step : body.epilogue) out["epilogue"].push_back(step_to_json(step));
  return out;
}

Body body_from_json(const Reader& reader) {
  reader.only({"kind", "function", "op", "value", "dim", "dims", "first", "rows", "from", "to", "tf32", "epilogue"});
  constexpr std::int64_t kRows = std::int64_t{1} << 40;
  Body body;
  body.kind = reader.at("kind").name(parse_body_kind);
  if (reader.has("function")) body.function = reader.at("function").name(parse_function);
  if (reader.has("op")) body.op = reader.at("op").name(parse_reduce_op);
  if (reader.has("value")) body.value = reader.at("value").number();
  if (reader.has("dim")) body.dim = index_from(reader.at("dim"));
  if (reader.has("dims")) body.dims = reader.at("dims").dims();
  if (reader.has("first")) body.first = reader.at("first").integer(0, kRows);
  if (reader.has("rows")) body.rows = reader.at("rows").integer(0, kRows);
  if (reader.has("from")) body.from = index_from(reader.at("from"));
  if (reader.has("to")) body.to = index_from(reader.at("to"));
  if (reader.has("tf32")) body.tf32 = reader.at("tf32").boolean();
  if (reader.has("epilogue")) {
    for (const Reader& item : reader.at("epilogue").items()) body.epilogue.push_back(step_from_json(item));
  }
  return body;
}

Value buffer_to_json(const Buffer& buffer) {
  Value out{{"name", buffer.name},
            {"rank", buffer.rank},
            {"role", name_in(kRoleNames, buffer.role)},
            {"dtype", name_of(buffer.dtype)}};
  out["shape"] = json::from(buffer.shape);
  if (buffer.symmetric) out["symmetric"] = true;
  if (buffer.slots != 1) out["slots"] = buffer.slots;
  if (!buffer.shared.empty()) out["shared"] = buffer.shared;
  if (buffer.role == Buffer::Role::constant) {
    out["value"] = buffer.value;
    if (buffer.value - buffer.value != 0) out["value"] = buffer.value > 0 ? "inf" : "-inf";
  }
  return out;
}

Buffer buffer_from_json(const Reader& reader) {
  reader.only({"name", "rank", "role", "dtype", "shape", "symmetric", "slots", "shared", "value"});
  Buffer buffer;
  buffer.name = bounded_text(reader.at("name"));
  buffer.rank = index_from(reader.at("rank"));
  buffer.role = parse_in<Buffer::Role>(kRoleNames, reader.at("role"));
  buffer.dtype = reader.at("dtype").name(parse_dtype);
  buffer.shape = reader.at("shape").dims();
  if (reader.has("symmetric")) buffer.symmetric = reader.at("symmetric").boolean();
  if (reader.has("slots")) buffer.slots = static_cast<std::int32_t>(reader.at("slots").integer(1, kMaxSlots));
  if (reader.has("shared")) buffer.shared = bounded_text(reader.at("shared"));
  if (reader.has("value")) buffer.value = reader.at("value").number();
  return buffer;
}

Value bindings_to_json(const std::vector<Plan::Binding>& bindings) {
  Value out = Value::array();
  for (const Plan::Binding& binding : bindings) {
    out.push_back({{"name", binding.name}, {"rank", binding.rank}, {"buffer", binding.buffer}});
  }
  return out;
}

std::vector<Plan::Binding> bindings_from_json(const Reader& reader) {
  std::vector<Plan::Binding> bindings;
  for (const Reader& item : reader.items()) {
    item.only({"name", "rank", "buffer"});
    bindings.push_back({bounded_text(item.at("name")), index_from(item.at("rank")), index_from(item.at("buffer"))});
  }
  return bindings;
}

// Appends "key": [ one entry a line ].
template <typename List, typename ToJson>
void put_list(std::string& text, const char* key, const List& list, const ToJson& to_json, bool last = false) {
  text += std::string(" \"") + key + "\": [";
  bool first = true;
  for (const auto& item : list) {
    text += (first ? "\n  " : ",\n  ") + Value(to_json(item)).dump(-1, ' ', true, Value::error_handler_t::replace);
    first = false;
  }
  text += last ? "\n ]\n}\n" : "\n ],\n";
}

}  // namespace

std::string to_json(const Plan& plan) {
  const auto dump = [](const Value& value) { return value.dump(-1, ' ', true, Value::error_handler_t::replace); };
  std::string text = "{\n \"tileway_plan\": " + std::to_string(kFormat) + ",\n";
  text += " \"name\": " + dump(plan.name) + ",\n \"schedule\": " + dump(plan.schedule) + ",\n";
  text += " \"topology\": " + dump(plan.topology.to_text()) + ",\n";
  const auto as_text = [](const std::string& line) { return Value(line); };
  put_list(text, "description", plan.description, as_text);
  put_list(text, "origins", plan.origins, as_text);
  text += " \"inputs\": " + dump(bindings_to_json(plan.inputs)) +
          ",\n \"outputs\": " + dump(bindings_to_json(plan.outputs)) + ",\n";
  put_list(text, "buffers", plan.buffers, buffer_to_json);
  put_list(text, "signals", plan.signals, [](const SignalInfo& signal) {
    Value out{{"rank", signal.rank}, {"kind", name_in(kSignalKindNames, signal.kind)}, {"total", signal.total}};
    if (signal.kind == SignalInfo::Kind::packet) out["buffer"] = signal.buffer;
    return out;
  });
  put_list(text, "partitions", plan.partitions, [](const Partition& partition) {
    return Value{{"to", partition.to}, {"target", partition.target}};
  });
  put_list(text, "bodies", plan.bodies, body_to_json);
  put_list(text, "lanes", plan.lanes, [](const Lane& lane) {
    return Value{{"rank", lane.rank}, {"engine", name_in(kEngineNames, lane.engine)}, {"tasks", lane.tasks}};
  });
  put_list(text, "tasks", plan.tasks, task_to_json, true);
  return text;
}

Plan plan_from_json(std::string_view text) {
  const Value value = json::parse(text, "plan");
  const Reader reader(value, "plan");
  reader.only({"tileway_plan", "name", "schedule", "topology", "description", "origins", "inputs", "outputs", "buffers",
               "signals", "partitions", "bodies", "lanes", "tasks"});
  reader.at("tileway_plan").integer(kFormat, kFormat);
  Plan plan;
  plan.name = bounded_text(reader.at("name"));
  plan.schedule = bounded_text(reader.at("schedule"));
  plan.topology = Topology::parse(reader.at("topology").text());
  for (const Reader& item : reader.at("description").items()) plan.description.push_back(bounded_text(item));
  for (const Reader& item : reader.at("origins").items()) plan.origins.push_back(bounded_text(item));
  plan.inputs = bindings_from_json(reader.at("inputs"));
  plan.outputs = bindings_from_json(reader.at("outputs"));
  for (const Reader& item : reader.at("buffers").items()) plan.buffers.push_back(buffer_from_json(item));
  for (const Reader& item : reader.at("signals").items()) {
    item.only({"rank", "kind", "total", "buffer"});
    plan.signals.push_back({index_from(item.at("rank")), parse_in<SignalInfo::Kind>(kSignalKindNames, item.at("kind")),
                            static_cast<std::uint32_t>(item.at("total").integer(0, kMany)),
                            item.has("buffer") ? index_from(item.at("buffer")) : -1});
  }
  for (const Reader& item : reader.at("partitions").items()) {
    item.only({"to", "target"});
    plan.partitions.push_back({index_from(item.at("to")), index_from(item.at("target"))});
  }
  for (const Reader& item : reader.at("bodies").items()) plan.bodies.push_back(body_from_json(item));
  for (const Reader& item : reader.at("lanes").items()) {
    item.only({"rank", "engine", "tasks"});
    Lane lane{index_from(item.at("rank")), parse_in<Engine>(kEngineNames, item.at("engine")), {}};
    for (std::int64_t id : item.at("tasks").integers()) {
      if (id < 0 || id > kMany) item.refuse("task numbers");
      lane.tasks.push_back(static_cast<TaskId>(id));
    }
    plan.lanes.push_back(std::move(lane));
  }
  for (const Reader& item : reader.at("tasks").items()) plan.tasks.push_back(task_from_json(item));
  check_structure(plan);
  return plan;
}

}  // namespace tileway
