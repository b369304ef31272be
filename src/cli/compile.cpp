// tileway compile: the kernels of an operator for GPUs, into the cache; no GPU needed.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "cli/command.hpp"
#include "exec/cuda/variant.hpp"
#include "runtime/cuda/compile.hpp"
#include "tileway/error.hpp"

namespace tileway::cli {
namespace {

// What the assembler says of the entry: "Used 168 registers, ...", and how much of them goes to memory and back.
struct Resources {
  std::string used = "?";
  std::string spills = "?";
};

Resources resources_of(const std::string& report) {
  Resources resources;
  std::istringstream lines(report);
  bool in_kernel = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("Compiling entry function") != std::string::npos)
      in_kernel = line.find("'tileway_run'") != std::string::npos;
    if (!in_kernel) continue;
    if (const std::size_t at = line.find("Used "); at != std::string::npos) resources.used = line.substr(at + 5);
    const std::size_t spilt = line.find("bytes stack frame, ");
    if (spilt != std::string::npos && resources.spills == "?") resources.spills = line.substr(spilt + 19);
  }
  return resources;
}

// None, and why, for a plan that the architecture cannot run; others may.
std::optional<cuda::KernelText> text_of(const Plan& plan, const std::string& architecture) {
  try {
    return cuda::KernelText(plan, architecture);
  } catch (const Error& error) {
    fmt::print("{} {} for {}: {}\n", plan.name, plan.schedule, architecture, error.what());
    return std::nullopt;
  }
}

int compile(const Options& options, const std::string& architectures) {
  int status = kDone;
  constexpr Place kManyGpus{.cuda = true, .gpus = 1024, .multiprocessors = 132};  // one for every rank
  for (const Plan& plan : make_plans(options, kManyGpus)) {
    std::istringstream list(architectures);
    for (std::string architecture; std::getline(list, architecture, ',');) {
      const std::optional<cuda::KernelText> made = text_of(plan, architecture);
      if (!made) {
        status = kNo;
        continue;
      }
      const cuda::KernelText& text = *made;
      const cuda::Image image = cuda::compile(text.source(), "tileway_run", architecture);
      const Resources resources = resources_of(image.report);
      fmt::print("{} {} for {}: {} bytes{}; {}; {}; products {}\n", plan.name, plan.schedule, architecture,
                 image.cubin.size(), image.from_cache ? " from the cache" : "", resources.used, resources.spills,
                 text.products_text());
    }
  }
  return status;
}

}  // namespace

void add_compile(CLI::App& app, int& status) {
  auto options = std::make_shared<Options>();
  auto architectures = std::make_shared<std::string>("sm_80,sm_90a,sm_100a");
  CLI::App* command = app.add_subcommand("compile", "compile an operator's GPU kernels into the cache; no GPU needed");
  add_common(*command, *options);
  command->add_option("--arch", *architectures, "as sm_80,sm_90a,sm_100a")->capture_default_str();
  command->callback([options, architectures, &status] { status = compile(*options, *architectures); });
}

}  // namespace tileway::cli
