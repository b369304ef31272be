// The names of the plan's enumerations, in their order: for people and in files.
#pragma once

#include <array>
#include <string_view>

#include "tileway/plan.hpp"

namespace tileway {

inline constexpr std::array<std::string_view, kEngineCount> kEngineNames{"compute", "copy", "collective", "library"};
inline constexpr std::array<std::string_view, 3> kRoleNames{"input", "constant", "scratch"};
inline constexpr std::array<std::string_view, kSignalKindCount> kSignalKindNames{"add", "set", "gate", "packet"};
inline constexpr std::array<std::string_view, 3> kStageNames{"load", "epilogue", "store"};
inline constexpr std::array<std::string_view, 3> kModeNames{"read", "write", "accumulate"};
inline constexpr std::array<std::string_view, 2> kScopeNames{"device", "system"};
inline constexpr std::array<std::string_view, 2> kAfterNames{"stores", "bulk_store"};

template <typename Enum, std::size_t n>
constexpr std::string_view name_in(const std::array<std::string_view, n>& names, Enum value) {
  return names[static_cast<std::size_t>(value)];
}

}  // namespace tileway
