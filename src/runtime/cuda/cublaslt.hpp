// cuBLASLt, a library of matrix products, opened when the program runs: building needs no header of it, and a machine
// without it does everything else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/cuda/driver.hpp"
#include "tileway/dtype.hpp"

namespace tileway::cuda {

// Whether cuBLASLt is there and complete, and which; or why not.
bool products_found();
std::string products_text();

// How many multiprocessors the resident blocks of a GPU leave to the library at the least. Its kernels wait for no
// others and so need not all run at once; but blocks of a cluster run together on neighbours, and what is left need not
// lie together: of 16 two always do.
inline constexpr int kLibraryMultiprocessors = 16;
// The largest cluster that finds room on `free` multiprocessors wherever they lie: a data centre's GPU has eight groups
// of neighbours (GPCs) at most.
constexpr int largest_cluster(int free) {
  constexpr int kGroups = 8;
  return free <= 0 ? 0 : (free - 1) / kGroups + 1;
}

// c = a b, `count` times over. Matrices are row-major; those of one operand lie evenly apart, or are one for all
// (a stride of 0). Strides are in elements.
struct Products {
  struct Matrices {
    Address first = 0;
    std::int64_t row_stride = 0;
    std::int64_t batch_stride = 0;
  };
  DType dtype = DType::f32;  // sums are fp32 whatever it is, and rounded once
  bool tf32 = false;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t count = 1;
  Matrices a{};
  Matrices b{};
  Matrices c{};
};

// Does products of the current device in streams. For one stream: its workspace is written by every call.
class Multiplier {
 public:
  // `multiprocessors`: how many of the device are left to it while it works. Throws Error (system) where cuBLASLt is
  // missing or refuses.
  explicit Multiplier(int multiprocessors);
  Multiplier(const Multiplier&) = delete;
  Multiplier& operator=(const Multiplier&) = delete;
  ~Multiplier();

  // Chooses how it is done, for these addresses; returns its number. Of k = 0 the results are zeros. Throws Error
  // (invalid), with `where`, if the library cannot do it beside what else runs.
  std::size_t prepare(const Products& products, const std::string& where);
  // Puts what was prepared in the stream, which may be capturing once it has been done outside of a capture: then
  // nothing is loaded or allocated.
  void multiply(std::size_t prepared, Stream stream) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tileway::cuda
