#include "cli/machine.hpp"

#include <fstream>
#include <thread>

namespace tileway::cli {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

nlohmann::ordered_json machine_json() {
  return {{"cpu", cpu_name()}, {"cores", std::thread::hardware_concurrency()}, {"gpus", 0}};
}

}  // namespace tileway::cli
