#include "tileway/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/json.hpp"
#include "tileway/error.hpp"

namespace tileway {
namespace {

constexpr std::uint64_t kLongestHeader = 100U << 20;

// Bytes of an element of a safetensors dtype, or 0 for one that is unknown.
std::uint64_t element_bytes(const std::string& dtype) {
  static const std::map<std::string, std::uint64_t> kBytes{
      {"F64", 8}, {"I64", 8}, {"U64", 8}, {"F32", 4}, {"I32", 4},  {"U32", 4},     {"BF16", 2},   {"F16", 2},
      {"I16", 2}, {"U16", 2}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  const auto found = kBytes.find(dtype);
  return found == kBytes.end() ? 0 : found->second;
}

std::optional<DType> dtype_of(const std::string& name) {
  static const std::map<std::string, DType> kNames{
      {"F32", DType::f32}, {"BF16", DType::bf16}, {"F16", DType::f16}, {"I32", DType::i32}, {"I64", DType::i64}};
  const auto found = kNames.find(name);
  return found == kNames.end() ? std::nullopt : std::optional(found->second);
}

[[noreturn]] void refuse(const std::string& where, std::string what, std::string expected = {}, std::string got = {}) {
  throw Error(ErrorKind::invalid,
              {.where = where, .what = std::move(what), .expected = std::move(expected), .got = std::move(got)});
}

}  // namespace

SafeTensors SafeTensors::open(const std::string& path) {
  SafeTensors tensors;
  tensors.path_ = path;
  std::error_code problem;
  if (!std::filesystem::is_regular_file(path, problem)) refuse(path, "not a file");
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) refuse(path, "cannot be opened", {}, std::strerror(errno));
  const auto size = static_cast<std::uint64_t>(file.tellg());
  std::uint64_t header_bytes = 0;
  file.seekg(0);
  if (size < sizeof(header_bytes) || !file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes))) {
    refuse(path, "too short for a safetensors file", "at least 8 bytes", std::to_string(size));
  }
  if (header_bytes > kLongestHeader || header_bytes > size - sizeof(header_bytes)) {
    refuse(path, "the header does not fit the file",
           "at most " + std::to_string(size - sizeof(header_bytes)) + " bytes", std::to_string(header_bytes));
  }
  std::string header(header_bytes, '\0');
  if (!file.read(header.data(), static_cast<std::streamsize>(header_bytes))) refuse(path, "cannot be read");
  const json::Value value = json::parse(header, path);
  const json::Reader reader(value, path);
  if (!value.is_object()) reader.refuse("an object of tensors");

  const std::uint64_t start = sizeof(header_bytes) + header_bytes;
  const auto data_bytes = static_cast<std::int64_t>(size - start);
  for (const auto& [name, unused] : value.items()) {
    if (name == "__metadata__") continue;
    const json::Reader item = reader.at(name.c_str());
    const std::string where = path + ", tensor '" + name + "'";
    Entry entry;
    entry.dtype = item.at("dtype").text();
    entry.shape = item.at("shape").dims();
    const std::vector<json::Reader> offsets = item.at("data_offsets").items();
    if (offsets.size() != 2) item.at("data_offsets").refuse("[begin, end]");
    const std::int64_t begin = offsets[0].integer(0, data_bytes);
    const std::int64_t end = offsets[1].integer(begin, data_bytes);
    const std::uint64_t element = element_bytes(entry.dtype);
    if (element == 0) refuse(where, "an unknown dtype", {}, entry.dtype);
    const auto expected = static_cast<std::uint64_t>(checked_volume(entry.shape, where)) * element;
    if (static_cast<std::uint64_t>(end - begin) != expected) {
      refuse(where, "the offsets do not fit the shape", std::to_string(expected) + " bytes",
             std::to_string(end - begin));
    }
    entry.begin = start + static_cast<std::uint64_t>(begin);
    entry.end = start + static_cast<std::uint64_t>(end);
    tensors.entries_.emplace(name, entry);
  }
  std::vector<std::pair<Entry, std::string>> sorted;
  for (const auto& [name, entry] : tensors.entries_) sorted.emplace_back(entry, name);
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.begin, a.first.end) < std::pair(b.first.begin, b.first.end);
  });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i].first.begin < sorted[i - 1].first.end) {
      refuse(path, "tensors '" + sorted[i - 1].second + "' and '" + sorted[i].second + "' overlap");
    }
  }
  return tensors;
}

std::vector<std::string> SafeTensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

const SafeTensors::Entry& SafeTensors::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) refuse(path_, "there is no tensor '" + name + "'");
  return found->second;
}

Array SafeTensors::load(const std::string& name) const {
  const Entry& found = entry(name);
  const std::optional<DType> dtype = dtype_of(found.dtype);
  if (!dtype)
    refuse(path_ + ", tensor '" + name + "'", "a dtype that cannot be loaded", "F32, BF16, F16, I32 or I64",
           found.dtype);
  Array array(*dtype, found.shape);
  std::ifstream file(path_, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(found.begin));
  if (!file.read(reinterpret_cast<char*>(array.data()), static_cast<std::streamsize>(array.bytes())) &&
      array.bytes() > 0) {
    refuse(path_ + ", tensor '" + name + "'", "the file ends too early");
  }
  return array;
}

}  // namespace tileway
