// tileway doctor: what this machine offers, what will be used, what is missing.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "cli/command.hpp"
#include "cli/machine.hpp"
#include "tileway/ops.hpp"

namespace tileway::cli {
namespace {

struct Library {
  const char* name;
  const char* file;
  const char* use;
  const char* remedy;
};

constexpr Library kLibraries[] = {
    {"CUDA driver", "libcuda.so.1", "runs plans on NVIDIA GPUs", "install the NVIDIA driver"},
    {"NVRTC", "libnvrtc.so.13", "compiles GPU kernels", "pip install nvidia-cuda-nvrtc, or install the CUDA toolkit"},
    {"NCCL", "libnccl.so.2", "moves tiles between GPUs", "pip install nvidia-nccl-cu13, or install NCCL"},
};

int doctor(const std::string& json_path) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 30);
  nlohmann::ordered_json report;
  report["version"] = TILEWAY_VERSION;
  report["machine"] = machine_json();
  fmt::print("tileway {}\n", TILEWAY_VERSION);
  fmt::print("  {} cores ({}), {:.1f} GiB of memory, at most {} open files\n", std::thread::hardware_concurrency(),
             cpu_name(), memory, files.rlim_cur);
  for (const Library& library : kLibraries) {
    const bool found = dlopen(library.file, RTLD_LAZY | RTLD_LOCAL) != nullptr;
    report["libraries"][library.name] = found;
    fmt::print("  {:<12} {}\n", library.name,
               found ? fmt::format("found ({})", library.use)
                     : fmt::format("missing: {} {}; {}", library.file, library.use, library.remedy));
  }
  report["executor"] = "host";
  fmt::print(
      "  executor     host: ranks are processes of this machine, lanes are threads (this build has no cuda "
      "executor)\n");
  fmt::print("  launcher     {}\n", Group::launched_ranks() > 0
                                        ? fmt::format("{} ranks started by a launcher", Group::launched_ranks())
                                        : "none; --ranks N starts N ranks here");
  fmt::print("operators:\n");
  for (const Operator& op : operators()) {
    fmt::print("  {:<22} --size {:<14} {}\n", op.name, fmt::format("{}", fmt::join(op.extents, "x")), op.summary);
    report["operators"].push_back(op.name);
  }
  if (!json_path.empty()) write_file(json_path, report.dump(1) + "\n");
  return kDone;
}

}  // namespace

void add_doctor(CLI::App& app, int& status) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("doctor", "what this machine offers, what will be used, what is missing");
  command->add_option("--json", *path, "write it as JSON too");
  command->callback([path, &status] { status = doctor(*path); });
}

}  // namespace tileway::cli
