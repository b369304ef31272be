// tileway doctor: what this machine offers, what will be used, what is missing.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "cli/command.hpp"
#include "cli/machine.hpp"
#include "runtime/cuda/compile.hpp"
#include "runtime/cuda/cublaslt.hpp"
#include "runtime/cuda/driver.hpp"
#include "runtime/cuda/nccl.hpp"
#include "tileway/ops.hpp"

namespace tileway::cli {
namespace {

// GPUs, or why there are none; what they need. Whether plans can run there.
bool report_cuda(nlohmann::ordered_json& report) {
  const std::vector<cuda::Gpu> gpus = cuda::gpus();
  if (gpus.empty()) fmt::print("  GPUs         none: {}\n", cuda::why_not());
  for (const cuda::Gpu& gpu : gpus) {
    std::string peers;
    for (std::size_t peer = 0; peer < gpu.reaches.size(); ++peer) {
      if (gpu.reaches[peer] && static_cast<int>(peer) != gpu.ordinal) peers += fmt::format(" {}", peer);
    }
    fmt::print("  GPU {}        {}, sm_{}{}, {} SMs, {:.0f} GiB, {}; reaches{}\n", gpu.ordinal, gpu.name, gpu.major,
               gpu.minor, gpu.multiprocessors, static_cast<double>(gpu.bytes) / (1 << 30), gpu.uuid,
               peers.empty() ? " no other" : peers);
    report["gpus"].push_back({{"name", gpu.name}, {"uuid", gpu.uuid}, {"multiprocessors", gpu.multiprocessors}});
  }
  report["libraries"]["NVRTC"] = cuda::compiler_found();
  fmt::print("  NVRTC        {}\n", cuda::compiler_found()
                                        ? "found: " + cuda::compiler_text()
                                        : "missing: it compiles GPU kernels; pip install nvidia-cuda-nvrtc, or install "
                                          "the CUDA toolkit (" +
                                              cuda::compiler_text() + ")");
  report["libraries"]["NCCL"] = cuda::collectives_found();
  fmt::print(
      "  NCCL         {}\n",
      cuda::collectives_found()
          ? "found: " + cuda::collectives_text()
          : "missing: --schedule collective communicates by it; pip install nvidia-nccl-cu13, or install NCCL (" +
                cuda::collectives_text() + ")");
  report["libraries"]["cuBLASLt"] = cuda::products_found();
  fmt::print("  cuBLASLt     {}\n",
             cuda::products_found()
                 ? "found: " + cuda::products_text()
                 : "missing: --schedule library multiplies by it; pip install nvidia-cublas, or install the CUDA "
                   "toolkit (" +
                       cuda::products_text() + ")");
  return !gpus.empty() && cuda::compiler_found();
}

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
  const bool cuda = report_cuda(report);
  report["executor"] = cuda ? "cuda" : "host";
  fmt::print("  executor     {}\n",
             cuda ? "cuda for as many ranks as there are GPUs, else host (--executor says otherwise)"
                  : "host: ranks are processes of this machine, lanes are threads");
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
