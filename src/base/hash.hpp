// FNV-1a, 64 bits: for telling texts apart, not for secrets.
#pragma once

#include <cstdint>
#include <string_view>

namespace tileway {

inline std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace tileway
