// A description of this machine, for results that are kept.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tileway::cli {

std::string cpu_name();
nlohmann::ordered_json machine_json();

}  // namespace tileway::cli
