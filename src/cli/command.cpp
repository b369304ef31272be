#include "cli/command.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <charconv>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tileway/error.hpp"
#include "tileway/ops.hpp"

namespace tileway::cli {

void add_common(CLI::App& command, Options& options) {
  command
      .add_option("OP", options.op, "an operator, or a program file (.json); for verify and explore also a plan file")
      ->required();
  command.add_option("--ranks", options.ranks, "ranks to start on this machine (default 2)")
      ->check(CLI::Range(1, 1024));
  command.add_option("--size", options.sizes, "as MxNxK; see `tileway doctor` for each operator's extents");
  command
      .add_option("--dtype", options.dtype,
                  "f32, bf16 or f16; tf32: f32 whose products are of operands rounded to tf32; e4m3: products of "
                  "fp8 matrices with scales, in bf16")
      ->capture_default_str();
  command.add_option("--executor", options.executor, "auto, host or cuda")->capture_default_str();
  command.add_option("--schedule", options.schedule,
                     "unfused, overlapped, fused (products go on with their elements and store to peers), collective "
                     "(by NCCL, without peer access: needs collective lanes), library (products by cuBLASLt: needs "
                     "library lanes), or all for the first two");
  command.add_option("--topology", options.topology, "plan for another machine: ranks=8,lanes=132,copy=2");
  command.add_option("--seed", options.seed, "of the random inputs, or the first order to explore")
      ->capture_default_str();
}

std::vector<std::int64_t> parse_size(const std::string& text) {
  std::vector<std::int64_t> size;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, 'x');) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    TW_REQUIRE(error == std::errc() && end == part.data() + part.size() && value >= 0, ErrorKind::invalid,
               .where = "--size", .what = "not a size", .expected = "whole numbers joined by x, as 513x1025x1023",
               .got = text);
    size.push_back(value);
  }
  return size;
}

Program make_program(const Options& options, const std::vector<std::int64_t>& size) {
  const int launched = Group::launched_ranks();
  const int ranks = options.ranks > 0 ? options.ranks : launched > 0 ? launched : 2;
  if (options.op.ends_with(".json")) {
    Program program = Program::from_json(read_file(options.op));
    TW_REQUIRE(options.ranks == 0 || options.ranks == program.world(), ErrorKind::invalid, .where = options.op,
               .what = "the program is for another number of ranks", .expected = std::to_string(program.world()),
               .got = std::to_string(options.ranks));
    TW_REQUIRE(size.empty(), ErrorKind::invalid, .where = options.op, .what = "a program file has its own size");
    TW_REQUIRE(options.dtype == Options{}.dtype, ErrorKind::invalid, .where = options.op,
               .what = "a program file has its own dtypes", .got = options.dtype);
    return program;
  }
  const bool tf32 = options.dtype == "tf32";
  return tileway::make_program(find_operator(options.op), ranks, tf32 ? DType::f32 : parse_dtype(options.dtype), size,
                               tf32 ? Precision::tf32 : Precision::exact);
}

Program make_program(const Options& options) {
  return make_program(options, options.sizes.empty() ? std::vector<std::int64_t>{} : parse_size(options.sizes[0]));
}

std::vector<std::string> schedule_names(const Options& options, std::string_view otherwise) {
  const std::string text(options.schedule.empty() ? otherwise : std::string_view(options.schedule));
  if (text == "all") return {"unfused", "overlapped"};
  return {text};
}

Topology make_topology(const Options& options, int ranks, const Place& place) {
  if (options.topology.empty()) return topology_of(place, ranks);
  const bool file = options.topology.find('=') == std::string::npos;
  std::string text = file ? read_file(options.topology) : options.topology;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  const Topology topology = Topology::parse(text);
  TW_REQUIRE(topology.ranks == ranks, ErrorKind::invalid, .where = "--topology",
             .what = "it has another number of ranks", .expected = std::to_string(ranks),
             .got = std::to_string(topology.ranks));
  return topology;
}

std::vector<Plan> make_plans(const Options& options, const Place& place) {
  TW_REQUIRE(options.sizes.size() <= 1, ErrorKind::invalid, .where = "--size", .what = "one plan has one size");
  if (options.op.ends_with(".json")) {
    const std::string text = read_file(options.op);
    if (text.find("\"tileway_plan\"") != std::string::npos) {
      const bool chosen = options.ranks != 0 || !options.sizes.empty() || options.dtype != Options{}.dtype ||
                          !options.topology.empty() || !options.schedule.empty();
      TW_REQUIRE(!chosen, ErrorKind::invalid, .where = options.op,
                 .what = "a plan file has its own ranks, size, dtypes, topology and schedule");
      return {plan_from_json(text)};
    }
  }
  const Program program = make_program(options);
  std::vector<Plan> plans;
  for (const std::string& name : schedule_names(options, schedule_of(place)))
    plans.push_back(
        lower(program, Schedule::named(program, name), make_topology(options, program.world(), place)).plan);
  return plans;
}

int on_ranks(const Place& place, int ranks, const std::function<int(Group&)>& body) {
  if (Group::launched_ranks() > 0) {
    Group group = Group::from_environment();
    TW_REQUIRE(group.size() == ranks, ErrorKind::invalid, .where = "--ranks",
               .what = "the launcher has started another number", .expected = std::to_string(group.size()),
               .got = std::to_string(ranks));
    try {
      return body(group);
    } catch (const Error& error) {
      group.announce_failure(error);
      throw;
    }
  }
  // Rank 0's answer comes back in memory that both processes see.
  void* page = mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  TW_REQUIRE(page != MAP_FAILED, ErrorKind::system, .where = "ranks", .what = "no shared memory",
             .got = std::strerror(errno));
  int* answer = static_cast<int*>(page);
  start_ranks(place, ranks, [&](Group& group) {
    const int status = body(group);
    if (group.rank() == 0) *answer = status;
  });
  const int status = *answer;
  munmap(page, sizeof(int));
  return status;
}

std::unique_ptr<Executor> make_executor(const Place& place, Group& group, const ProvenPlan& plan,
                                        const Options& options, bool trace) {
  if (options.link_gb_s == 0) return tileway::make_executor(place, group, plan, trace);
  TW_REQUIRE(!place.cuda, ErrorKind::invalid, .where = "--link", .what = "only the host's link can be slowed");
  return std::make_unique<HostExecutor>(group, plan,
                                        HostExecutor::Options{.link_gb_s = options.link_gb_s, .trace = trace});
}

void set_inputs(Executor& executor, const Bindings& inputs, int rank) {
  for (const auto& [name, parts] : inputs) {
    if (executor.holds(name)) executor.set_input(name, parts[rank]);
  }
}

Bindings collect_outputs(Group& group, Executor& executor, const Program& program) {
  Bindings outputs;
  for (const Program::Output& output : program.outputs()) {
    const TensorType& type = program.ops()[output.op].type;
    std::string mine;
    if (executor.holds(output.name)) {
      const Array part = executor.get(output.name);
      mine.assign(reinterpret_cast<const char*>(part.data()), part.bytes());
    }
    const std::vector<std::string> all = group.all_gather(mine, "collecting outputs");
    std::vector<Array>& parts = outputs[output.name];
    parts.resize(program.world());
    const std::vector<int>& ranks = program.groups()[type.group];
    for (std::size_t m = 0; m < ranks.size(); ++m) {
      parts[ranks[m]] = Array(type.dtype, type.local_shape(static_cast<int>(m)));
      if (!all[ranks[m]].empty()) std::memcpy(parts[ranks[m]].data(), all[ranks[m]].data(), all[ranks[m]].size());
    }
  }
  return outputs;
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  TW_REQUIRE(file.good(), ErrorKind::invalid, .where = path, .what = "cannot be written", .got = std::strerror(errno));
}

std::string read_file(const std::string& path) {
  constexpr std::streamoff kLongest = std::streamoff{1} << 30;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  TW_REQUIRE(file.good(), ErrorKind::invalid, .where = path, .what = "cannot be read", .got = std::strerror(errno));
  const std::streamoff length = file.tellg();
  TW_REQUIRE(length >= 0 && length <= kLongest, ErrorKind::invalid, .where = path,
             .what = "not a file of at most 1 GiB");
  std::string text(static_cast<std::size_t>(length), '\0');
  file.seekg(0);
  file.read(text.data(), length);
  TW_REQUIRE(file.good(), ErrorKind::invalid, .where = path, .what = "cannot be read", .got = std::strerror(errno));
  return text;
}

}  // namespace tileway::cli
