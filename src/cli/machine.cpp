#include "cli/machine.hpp"

#include <fstream>
#include <thread>

#include "runtime/cuda/driver.hpp"

namespace tileway::cli {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

nlohmann::ordered_json machine_json() {
  const cuda::Fleet fleet = cuda::fleet();
  nlohmann::ordered_json machine{
      {"cpu", cpu_name()}, {"cores", std::thread::hardware_concurrency()}, {"gpus", fleet.gpus}};
  if (fleet.gpus > 0) machine["gpu"] = fleet.name.data();
  return machine;
}

}  // namespace tileway::cli
