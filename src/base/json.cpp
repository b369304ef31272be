#include "base/json.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "tileway/error.hpp"

namespace tileway::json {
namespace {

constexpr int kMaxDepth = 16;

// Watches the parse for depth and for keys that come twice in one object.
class Guard {
 public:
  explicit Guard(const std::string& where) : where_(where) {}

  bool operator()(int depth, Value::parse_event_t event, Value& parsed) {
    TW_REQUIRE(depth <= kMaxDepth, ErrorKind::invalid, .where = where_, .what = "nested too deeply",
               .expected = "at most " + std::to_string(kMaxDepth) + " levels");
    if (event == Value::parse_event_t::object_start) keys_.emplace_back();
    if (event == Value::parse_event_t::object_end) keys_.pop_back();
    if (event == Value::parse_event_t::key) {
      const auto key = parsed.get<std::string>();
      TW_REQUIRE(keys_.back().insert(key).second, ErrorKind::invalid, .where = where_,
                 .what = "key '" + key + "' comes twice");
    }
    return true;
  }

 private:
  const std::string& where_;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

Value parse(std::string_view text, const std::string& where) {
  // The parser takes a NUL for the end of the text, and would not look at what follows.
  TW_REQUIRE(text.find('\0') == text.npos, ErrorKind::invalid, .where = where, .what = "not valid JSON",
             .got = "a zero byte");
  Guard guard(where);
  try {
    return Value::parse(
        text, [&](int depth, Value::parse_event_t event, Value& parsed) { return guard(depth, event, parsed); });
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::invalid, {.where = where, .what = "not valid JSON", .got = error.what()});
  }
}

void Reader::refuse(const std::string& expected) const {
  std::string got = value_->dump(-1, ' ', true, Value::error_handler_t::replace);
  if (got.size() > 80) got = got.substr(0, 77) + "...";
  throw Error(ErrorKind::invalid, {.where = path_, .what = "not what belongs there", .expected = expected, .got = got});
}

Reader Reader::at(const char* key) const {
  if (!has(key)) refuse(std::string("an object with '") + key + "'");
  return {(*value_)[key], path_ + "." + key};
}

std::vector<Reader> Reader::items() const {
  if (!value_->is_array()) refuse("a list");
  std::vector<Reader> items;
  items.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i)
    items.emplace_back((*value_)[i], path_ + "[" + std::to_string(i) + "]");
  return items;
}

std::int64_t Reader::integer(std::int64_t low, std::int64_t high) const {
  const std::string expected = "a whole number from " + std::to_string(low) + " to " + std::to_string(high);
  if (!value_->is_number_integer()) refuse(expected);
  if (value_->is_number_unsigned() &&
      value_->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
    refuse(expected);
  }
  const auto value = value_->get<std::int64_t>();
  if (value < low || value > high) refuse(expected);
  return value;
}

double Reader::number() const {
  if (value_->is_string()) {  // JSON has no infinities
    if (*value_ == "inf") return std::numeric_limits<double>::infinity();
    if (*value_ == "-inf") return -std::numeric_limits<double>::infinity();
  }
  if (!value_->is_number()) refuse("a number, \"inf\" or \"-inf\"");
  return value_->get<double>();
}

bool Reader::boolean() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

std::string Reader::text() const {
  if (!value_->is_string()) refuse("a text");
  return value_->get<std::string>();
}

std::vector<std::int64_t> Reader::integers() const {
  std::vector<std::int64_t> values;
  constexpr std::int64_t kLimit = std::int64_t{1} << 48;
  for (const Reader& item : items()) values.push_back(item.integer(-kLimit, kLimit));
  return values;
}

Dims Reader::dims() const {
  if (value_->is_array() && value_->size() > kMaxDims) refuse("at most " + std::to_string(kMaxDims) + " dimensions");
  const std::vector<std::int64_t> values = integers();
  return Dims(std::span<const std::int64_t>(values));
}

void Reader::only(std::initializer_list<std::string_view> keys) const {
  if (!value_->is_object()) refuse("an object");
  for (const auto& [key, unused] : value_->items()) {
    const bool known = std::find(keys.begin(), keys.end(), key) != keys.end();
    TW_REQUIRE(known, ErrorKind::invalid, .where = path_, .what = "unknown field '" + key + "'");
  }
}

Value from(const Dims& dims) { return Value(std::vector<std::int64_t>(dims.begin(), dims.end())); }

}  // namespace tileway::json
