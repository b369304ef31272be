// Reading JSON from files that anyone may have written: every access checks, and says where it failed.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tileway/error.hpp"
#include "tileway/shape.hpp"

namespace tileway::json {

using Value = nlohmann::ordered_json;

// Throws Error (invalid) for text that is not JSON, nests deeper than 16 or repeats a key; `where` names the file.
Value parse(std::string_view text, const std::string& where);

// A value with the path that led to it: "program.ops[3]". Every accessor throws Error (invalid) naming that path.
class Reader {
 public:
  Reader(const Value& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  bool has(const char* key) const { return value_->is_object() && value_->contains(key); }
  Reader at(const char* key) const;
  std::vector<Reader> items() const;
  std::int64_t integer(std::int64_t low, std::int64_t high) const;
  double number() const;
  bool boolean() const;
  std::string text() const;
  // The text as one of a set of names; `parse` throws Error for any other.
  template <typename Parse>
  auto name(const Parse& parse) const {
    const std::string value = text();
    try {
      return parse(value);
    } catch (const Error& error) {
      refuse("a known name (" + std::string(error.what()).substr(10) + ")");
    }
  }
  Dims dims() const;
  std::vector<std::int64_t> integers() const;
  // Throws unless every key is among the allowed ones, so that a misspelt field is not ignored.
  void only(std::initializer_list<std::string_view> keys) const;
  [[noreturn]] void refuse(const std::string& expected) const;

 private:
  const Value* value_;
  std::string path_;
};

Value from(const Dims& dims);

}  // namespace tileway::json
