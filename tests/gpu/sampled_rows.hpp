// A few rows of a product that ran on GPUs, against the interpreter's. Rows of a product do not depend on each other,
// so these make a small program of their own: the same operator with all of its columns and depth.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/gemm_cases.hpp"
#include "tileway/executor.hpp"
#include "tileway/interpreter.hpp"
#include "tileway/ops.hpp"

namespace tileway::testing::gemms {

// What a rank holds of a matrix, and where that begins.
struct Part {
  std::int64_t rows, columns, first_row, first_column;
};
inline Part part_of(const TensorType& type, int rank) {
  const Shape shape = type.local_shape(rank);
  return {shape[0], shape[1], type.placement.is_shard(0) ? type.shard_start(rank) : 0,
          type.placement.is_shard(1) ? type.shard_start(rank) : 0};
}

inline std::vector<std::int64_t> sampled_rows(std::int64_t rows) {
  const std::set<std::int64_t> some{0, rows / 2, rows - 1};
  return {some.begin(), some.end()};
}

class SampledRows {
 public:
  // Of the first operand and of the result, rising.
  SampledRows(const Case& one, const Program& program, std::vector<std::int64_t> rows)
      : rows_(std::move(rows)),
        by_library_(std::string_view(one.engines.schedule) == "library"),
        whole_(program),
        few_(make_program(*one.op, one.ranks, one.type.dtype,
                          std::vector{static_cast<std::int64_t>(rows_.size()), one.size[1], one.size[2]},
                          one.type.precision)) {
    for (const auto& [name, type] : tensors_of(whole_)) held_[name].resize(static_cast<std::size_t>(one.ranks));
  }

  // What a rank holds after its run. Ranks may call it at once.
  void take(int rank, const Executor& executor) {
    for (const auto& [name, type] : tensors_of(whole_)) {
      const Array all = executor.get(name);
      const Part part = part_of(*type, rank);
      std::map<std::int64_t, Array>& held = held_.at(name)[static_cast<std::size_t>(rank)];
      held.clear();
      if (!has_sampled_rows(name)) held.emplace(0, all);
      for (std::size_t i = 0; i < rows_.size() && has_sampled_rows(name); ++i) {
        const std::int64_t row = rows_[i] - part.first_row;
        if (row >= 0 && row < part.rows) held.emplace(i, all.slice({{row, 0}, {1, part.columns}}));
      }
    }
  }

  // Makes one element of the last sampled row wrong.
  void spoil() {
    for (auto& rows : held_.at("y")) {
      const auto found = rows.find(static_cast<std::int64_t>(rows_.size()) - 1);
      if (found == rows.end() || found->second.size() == 0) continue;
      found->second.set(0, found->second.at(0) + 64);
      return;
    }
  }

  // `exact`: on whole numbers. How many rows that were.
  std::int64_t expect_right(bool exact, const std::string& where) const {
    Bindings inputs;
    Bindings outputs;
    for (const auto& [name, type] : tensors_of(few_)) {
      for (int rank = 0; rank < few_.world(); ++rank)
        (name == "y" ? outputs : inputs)[name].push_back(part_of_few(name, *type, rank));
    }
    if (!exact) {
      const Accuracy accuracy = measure_accuracy(few_, inputs, outputs);
      EXPECT_LE(accuracy.error, accuracy.allowed) << where << ": sampled rows against the interpreter";
      return static_cast<std::int64_t>(rows_.size());
    }
    const Bindings expected = interpret(few_, inputs);
    for (std::size_t rank = 0; rank < outputs.at("y").size(); ++rank) {
      const Array& got = outputs.at("y")[rank];
      const Array& want = expected.at("y")[rank];
      // cuBLASLt's zeros may be negative.
      EXPECT_TRUE(by_library_ ? max_difference(got, want) == 0 : got == want)
          << where << ": sampled rows of rank " << rank << " are not the interpreter's; at most "
          << max_difference(got, want) << " off";
    }
    return static_cast<std::int64_t>(rows_.size());
  }

 private:
  static std::map<std::string, const TensorType*> tensors_of(const Program& program) {
    std::map<std::string, const TensorType*> all;
    for (const Op& op : program.ops()) {
      if (op.kind == OpKind::input) all[op.name] = &op.type;
    }
    all["y"] = &program.ops()[program.outputs()[0].op].type;
    return all;
  }
  static bool has_sampled_rows(const std::string& name) { return name == "x" || name == "x_scale" || name == "y"; }

  // What the rank would hold in the small program: from itself, else from whoever holds the row.
  Array part_of_few(const std::string& name, const TensorType& type, int rank) const {
    const std::vector<std::map<std::int64_t, Array>>& held = held_.at(name);
    if (!has_sampled_rows(name)) return held[static_cast<std::size_t>(rank)].at(0);
    const Part part = part_of(type, rank);
    Array result(type.dtype, type.local_shape(rank));
    const std::size_t bytes = static_cast<std::size_t>(part.columns) * size_of(type.dtype);
    for (std::int64_t row = 0; row < part.rows && bytes > 0; ++row) {
      const Array* from = nullptr;
      for (int turn = 0; turn < few_.world() && from == nullptr; ++turn) {
        const auto& rows = held[static_cast<std::size_t>((rank + turn) % few_.world())];
        const auto found = rows.find(part.first_row + row);
        if (found != rows.end() && found->second.bytes() == bytes) from = &found->second;
      }
      if (from == nullptr) {
        ADD_FAILURE() << "no rank holds row " << part.first_row + row << " of " << name;
        return result;
      }
      std::copy_n(from->data(), bytes, result.data() + static_cast<std::size_t>(row) * bytes);
    }
    return result;
  }

  std::vector<std::int64_t> rows_;
  bool by_library_;
  const Program& whole_;
  Program few_;
  std::map<std::string, std::vector<std::map<std::int64_t, Array>>> held_;  // [name][rank], by sampled row
};

}  // namespace tileway::testing::gemms
