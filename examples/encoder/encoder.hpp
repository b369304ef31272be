// A sentence encoder (BERT, as all-MiniLM-L6-v2 has it) as a tensor-parallel program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tileway/interpreter.hpp"
#include "tileway/program.hpp"
#include "tileway/safetensors.hpp"

namespace tileway::encoder {

// Sizes, from the model's config.json.
struct Config {
  std::int64_t layers = 6;
  std::int64_t hidden = 384;
  std::int64_t heads = 12;
  std::int64_t feed_forward = 1536;
  double epsilon = 1e-12;
};

// Token ids of a padded batch; mask 1 for a token, 0 for padding.
struct Batch {
  std::int64_t sentences = 0;
  std::int64_t tokens = 0;  // of the longest sentence
  std::vector<double> ids;
  std::vector<double> mask;
};

// The whole encoder over `ranks`: heads and feed-forward sharded, vocabulary sharded by rows, each output projection
// followed by an all_reduce; mean pooling and normalisation at the end. Output "embeddings": [sentences, hidden],
// replicated.
Program build(const Config& config, const Batch& batch, int ranks);

// What each rank holds of every input of that program. Throws Error (invalid) when the weights do not fit the program.
Bindings load_inputs(const Program& program, const SafeTensors& weights, const Batch& batch);

}  // namespace tileway::encoder
