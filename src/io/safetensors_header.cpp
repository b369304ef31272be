#include "io/safetensors_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "tileway/error.hpp"

namespace tileway {
namespace {

constexpr std::string_view kMetadata = "__metadata__";

struct Element {
  std::string_view name;
  unsigned bits;
};

constexpr std::array kElements = {
    Element{"F64", 64},    Element{"F32", 32},    Element{"F16", 16},    Element{"BF16", 16},   Element{"F8_E4M3", 8},
    Element{"F8_E5M2", 8}, Element{"F8_E8M0", 8}, Element{"F6_E2M3", 6}, Element{"F6_E3M2", 6}, Element{"F4", 4},
    Element{"I64", 64},    Element{"I32", 32},    Element{"I16", 16},    Element{"I8", 8},      Element{"U64", 64},
    Element{"U32", 32},    Element{"U16", 16},    Element{"U8", 8},      Element{"BOOL", 8},    Element{"C64", 64},
};

// At most `limit` bytes of a text from the file, cut between characters; quotes and control characters are escaped.
std::string printable(std::string_view text, std::size_t limit = 80) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool starts_character = (byte & 0xC0U) != 0x80U;
    if (i >= limit && starts_character) return out + "...";
    if (byte < 0x20 || byte == 0x7F || byte == '"') {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string in_quotes(std::string_view text) { return '"' + printable(text) + '"'; }

// Turns the parser's events into entries. Only the places that the format has are ever entered, so that no input nests
// deeper than a tensor's list, and nothing is stored but entries and the keys of the metadata.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(const std::string& file, std::uint64_t data_bytes) : file_(file), data_bytes_(data_bytes) {}

  TensorTable take() { return std::move(table_); }

  bool null() override { unexpected("null"); }
  bool boolean(bool value) override { unexpected(value ? "true" : "false"); }
  bool number_float(double, const std::string& text) override { unexpected(printable(text)); }
  bool binary(nlohmann::json::binary_t&) override { unexpected("binary data"); }

  // The parser reports a number as signed only when it has a minus sign.
  bool number_integer(std::int64_t value) override {
    if (value < 0) unexpected(std::to_string(value));
    return number_unsigned(static_cast<std::uint64_t>(value));
  }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ == Place::shape) return add_extent(value);
    if (place_ == Place::offsets) {
      offsets_.push_back(value);
      if (offsets_.size() > 2) fail("data_offsets have too many numbers", "two: begin and end");
      return true;
    }
    unexpected(std::to_string(value));
  }

  bool string(std::string& text) override {
    if (place_ == Place::metadata) return true;
    if (place_ != Place::tensor || key_ != "dtype") unexpected(in_quotes(text));
    dtype_ = text;
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::file;
    } else if (place_ == Place::file) {
      place_ = key_ == kMetadata ? Place::metadata : Place::tensor;
      name_ = key_;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(std::string& text) override {
    key_ = text;
    if (place_ == Place::metadata) {
      if (!metadata_keys_.insert(text).second) fail("a duplicate key", "each key once", in_quotes(text));
    } else if (place_ == Place::file) {
      const bool repeated = text == kMetadata ? std::exchange(has_metadata_, true) : table_.contains(text);
      if (repeated) fail("a duplicate key", "each name once", in_quotes(text));
    } else {
      enter_field();
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) add_tensor();
    place_ = place_ == Place::file ? Place::outside : Place::file;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || key_ == "dtype") unexpected("a list");
    place_ = key_ == "shape" ? Place::shape : Place::offsets;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets && offsets_.size() != 2) {
      fail("data_offsets have too few numbers", "two: begin and end", std::to_string(offsets_.size()));
    }
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& problem) override {
    const bool bad_text = std::string_view(problem.what()).find("ill-formed UTF-8") != std::string_view::npos;
    place_ = Place::outside;
    fail(bad_text ? "the header is not valid UTF-8" : "the header is not valid JSON", "",
         fmt::format("an error at byte {} of the header", position));
  }

 private:
  enum class Place { outside, file, metadata, tensor, shape, offsets };

  [[noreturn]] void fail(std::string what, std::string expected = "", std::string got = "") const {
    const bool in_tensor = place_ == Place::tensor || place_ == Place::shape || place_ == Place::offsets;
    throw Error(ErrorKind::invalid, {.where = in_tensor ? tensor_label(file_, name_) : file_,
                                     .what = std::move(what),
                                     .expected = std::move(expected),
                                     .got = std::move(got)});
  }

  [[noreturn]] void unexpected(const std::string& got) const {
    switch (place_) {
      case Place::outside:
        fail("the header is not a JSON object", "", got);
      case Place::file:
        fail(in_quotes(key_) + " is not described by an object", "", got);
      case Place::metadata:
        fail("a value of __metadata__ is not a string", "", got);
      case Place::tensor:
        fail(key_ + " has the wrong type", key_ == "dtype" ? "a string" : "a list of whole numbers", got);
      case Place::shape:
      case Place::offsets:
        fail(key_ + " has a wrong value", "whole numbers from 0 up to 2^64 - 1", got);
    }
    TW_ASSERT(false);
  }

  // A key inside a tensor's description.
  void enter_field() {
    bool* seen = key_ == "dtype" ? &has_dtype_ : key_ == "shape" ? &has_shape_ : &has_offsets_;
    if (seen == &has_offsets_ && key_ != "data_offsets") {
      fail("an unknown key", "dtype, shape and data_offsets", in_quotes(key_));
    }
    if (std::exchange(*seen, true)) fail("a duplicate key", "each key once", in_quotes(key_));
  }

  bool add_extent(std::uint64_t value) {
    if (shape_.size() == kMaxDims) fail("too many dimensions", fmt::format("at most {}", kMaxDims));
    if (value > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
      fail("the tensor is too large", "", fmt::format("an extent of {}", value));
    }
    shape_.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  void add_tensor() {
    for (const auto& [seen, field] :
         {std::pair(has_dtype_, "dtype"), std::pair(has_shape_, "shape"), std::pair(has_offsets_, "data_offsets")}) {
      if (!seen) fail(fmt::format("{} is missing", field), "dtype, shape and data_offsets");
    }
    const std::uint64_t begin = offsets_[0];
    const std::uint64_t end = offsets_[1];
    if (begin > end) fail("data_offsets run backwards", "begin <= end", fmt::format("[{}, {}]", begin, end));
    if (end > data_bytes_) {
      throw Error(ErrorKind::invalid, {.where = tensor_label(file_, name_),
                                       .what = "its data lie outside the file",
                                       .expected = fmt::format("offsets up to {}", data_bytes_),
                                       .got = fmt::format("[{}, {}]", begin, end),
                                       .hint = "The file may be truncated; fetch it again"});
    }
    const std::uint64_t needed = bytes_needed();
    if (end - begin != needed) {
      fail("the length of its data does not match its shape",
           fmt::format("{} bytes for {} {}", needed, dtype_, to_string(shape_)), std::to_string(end - begin));
    }
    table_.emplace(name_, TensorEntry{std::exchange(dtype_, {}), std::exchange(shape_, {}), begin, end});
    offsets_.clear();
    has_dtype_ = has_shape_ = has_offsets_ = false;
  }

  std::uint64_t bytes_needed() const {
    const auto element = std::find_if(kElements.begin(), kElements.end(), [&](auto& e) { return e.name == dtype_; });
    if (element == kElements.end()) fail("an unknown dtype", "one of the safetensors format", in_quotes(dtype_));
    // Extents of 0 count as 1 here: an empty tensor must not hide extents whose strides would overflow.
    Shape at_least_one = shape_;
    for (std::int64_t& extent : at_least_one) extent = std::max<std::int64_t>(extent, 1);
    checked_volume(at_least_one, tensor_label(file_, name_));
    const std::uint64_t bits = static_cast<std::uint64_t>(volume(shape_)) * element->bits;
    if (bits % 8 != 0) fail("its elements do not fill whole bytes", "", fmt::format("{} bits", bits));
    return bits / 8;
  }

  const std::string& file_;
  std::uint64_t data_bytes_;
  Place place_ = Place::outside;
  std::string key_;
  std::string name_;
  std::string dtype_;
  Shape shape_;
  std::vector<std::uint64_t> offsets_;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  bool has_metadata_ = false;
  std::set<std::string> metadata_keys_;
  TensorTable table_;
};

// The format wants every byte to belong to exactly one tensor.
void check_coverage(const TensorTable& table, std::uint64_t data_bytes, const std::string& file) {
  std::vector<const TensorTable::value_type*> tensors;
  for (const auto& tensor : table) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(), [](auto* a, auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::uint64_t covered = 0;
  for (const auto* tensor : tensors) {
    const auto& [name, entry] = *tensor;
    TW_REQUIRE(entry.begin >= covered, ErrorKind::invalid, .where = tensor_label(file, name),
               .what = "its data overlap those of another tensor", .expected = fmt::format("begin >= {}", covered),
               .got = fmt::format("[{}, {}]", entry.begin, entry.end));
    TW_REQUIRE(entry.begin == covered, ErrorKind::invalid, .where = tensor_label(file, name),
               .what = "bytes before its data belong to no tensor", .expected = fmt::format("begin = {}", covered),
               .got = fmt::format("[{}, {}]", entry.begin, entry.end));
    covered = entry.end;
  }
  TW_REQUIRE(covered == data_bytes, ErrorKind::invalid, .where = file, .what = "bytes at the end belong to no tensor",
             .expected = fmt::format("{} bytes of data", covered), .got = std::to_string(data_bytes));
}

}  // namespace

std::string tensor_label(const std::string& file, std::string_view name) {
  return file + ", tensor " + in_quotes(name);
}

TensorTable read_safetensors_header(std::string_view header, std::uint64_t data_bytes, const std::string& file) {
  TW_REQUIRE(header.starts_with('{'), ErrorKind::invalid, .where = file, .what = "the header is not a JSON object",
             .expected = "{ as its first byte", .hint = "Check that this is a safetensors file");
  // The parser takes a NUL for the end of the text, and would not look at what follows.
  TW_REQUIRE(header.find('\0') == std::string_view::npos, ErrorKind::invalid, .where = file,
             .what = "the header is not valid JSON", .got = "a zero byte");
  HeaderReader reader(file, data_bytes);
  nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
  TensorTable table = reader.take();
  check_coverage(table, data_bytes, file);
  return table;
}

}  // namespace tileway
