#include "tileway/safetensors.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <optional>
#include <span>
#include <system_error>

#include "io/safetensors_header.hpp"
#include "tileway/error.hpp"

namespace tileway {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, and bytes are used as they lie");

constexpr std::uint64_t kPrefixBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format's own implementation

std::optional<DType> known_dtype(std::string_view name) {
  if (name == "F32") return DType::f32;
  if (name == "BF16") return DType::bf16;
  if (name == "F16") return DType::f16;
  if (name == "F8_E4M3") return DType::e4m3;
  if (name == "I32") return DType::i32;
  if (name == "I64") return DType::i64;
  return std::nullopt;
}

std::string reason(int code) { return std::generic_category().message(code); }

}  // namespace

// Kept open, so that load() reads the file that was checked even when the path has been replaced since. Plain reads and
// no mapping: a mapped file that somebody shortens ends the process.
struct SafeTensors::File {
  explicit File(const std::string& file_path) : path(file_path) {
    // Without O_NONBLOCK, opening a pipe would wait for a writer.
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    TW_REQUIRE(descriptor >= 0, ErrorKind::invalid, .where = path, .what = "cannot open the file", .got = reason(errno),
               .hint = "Check the path and its permissions");
  }
  ~File() {
    if (descriptor >= 0) ::close(descriptor);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::uint64_t size() const {
    struct stat status {};
    TW_REQUIRE(::fstat(descriptor, &status) == 0, ErrorKind::system, .where = path, .what = "cannot examine the file",
               .got = reason(errno));
    TW_REQUIRE(S_ISREG(status.st_mode), ErrorKind::invalid, .where = path, .what = "not a regular file",
               .expected = "a safetensors file", .got = S_ISDIR(status.st_mode) ? "a directory" : "a special file");
    return static_cast<std::uint64_t>(status.st_size);
  }

  void read(std::uint64_t position, std::span<std::byte> into) const {
    while (!into.empty()) {
      const ssize_t count = ::pread(descriptor, into.data(), into.size(), static_cast<off_t>(position));
      if (count < 0 && errno == EINTR) continue;
      TW_REQUIRE(count >= 0, ErrorKind::system, .where = path, .what = "cannot read the file", .got = reason(errno));
      TW_REQUIRE(count > 0, ErrorKind::invalid, .where = path, .what = "the file became shorter while it was open");
      position += static_cast<std::uint64_t>(count);
      into = into.subspan(static_cast<std::size_t>(count));
    }
  }

  const TensorEntry& entry(const std::string& name) const {
    const auto found = table.find(name);
    TW_REQUIRE(found != table.end(), ErrorKind::invalid, .where = tensor_label(path, name),
               .what = "no such tensor in the file", .expected = fmt::format("one of its {} names", table.size()));
    return found->second;
  }

  std::string path;
  int descriptor = -1;
  std::uint64_t data_start = 0;
  TensorTable table;
};

SafeTensors SafeTensors::open(const std::string& path) {
  auto file = std::make_shared<File>(path);
  const std::uint64_t size = file->size();
  TW_REQUIRE(size >= kPrefixBytes, ErrorKind::invalid, .where = path,
             .what = size == 0 ? "the file is empty" : "the file is too short to hold a header length",
             .expected = fmt::format("at least {} bytes", kPrefixBytes), .got = std::to_string(size),
             .hint = "Check that this is a safetensors file, fetched completely");

  std::array<std::byte, kPrefixBytes> prefix{};
  file->read(0, prefix);
  const auto header_bytes = std::bit_cast<std::uint64_t>(prefix);
  TW_REQUIRE(header_bytes <= kMaxHeaderBytes, ErrorKind::invalid, .where = path,
             .what = "the header length is too large", .expected = fmt::format("at most {} bytes", kMaxHeaderBytes),
             .got = std::to_string(header_bytes), .hint = "Check that this is a safetensors file");
  TW_REQUIRE(header_bytes <= size - kPrefixBytes, ErrorKind::invalid, .where = path,
             .what = "the header is longer than the file", .expected = fmt::format("{} bytes", header_bytes),
             .got = std::to_string(size - kPrefixBytes), .hint = "The file may be truncated; fetch it again");

  std::string header(header_bytes, '\0');
  file->read(kPrefixBytes, std::as_writable_bytes(std::span(header)));
  file->data_start = kPrefixBytes + header_bytes;
  file->table = read_safetensors_header(header, size - file->data_start, path);
  return SafeTensors(std::move(file));
}

std::vector<std::string> SafeTensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : file_->table) names.push_back(name);
  return names;
}

bool SafeTensors::contains(const std::string& name) const { return file_->table.contains(name); }

Shape SafeTensors::shape(const std::string& name) const { return file_->entry(name).shape; }

DType SafeTensors::dtype(const std::string& name) const {
  const TensorEntry& entry = file_->entry(name);
  const std::optional<DType> dtype = known_dtype(entry.dtype);
  TW_REQUIRE(dtype.has_value(), ErrorKind::invalid, .where = tensor_label(file_->path, name),
             .what = "a dtype that tileway does not have", .expected = "F32, BF16, F16, F8_E4M3, I32 or I64",
             .got = entry.dtype, .hint = "Convert the tensor before use");
  return *dtype;
}

Array SafeTensors::load(const std::string& name) const {
  const TensorEntry& entry = file_->entry(name);
  Array array(dtype(name), entry.shape);
  TW_ASSERT(array.bytes() == entry.end - entry.begin);
  file_->read(file_->data_start + entry.begin, std::span(array.data(), array.bytes()));
  return array;
}

}  // namespace tileway
