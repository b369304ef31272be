// How ranks find each other: one operation, which any store that a launcher offers could provide.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/file_descriptor.hpp"

namespace tileway {

// What one member brings to a meeting: a text and perhaps an open file.
struct Piece {
  std::string value;
  std::shared_ptr<FileDescriptor> file;
};

// A meeting of `members` world ranks under a key that is never used twice.
struct Meeting {
  std::string key;
  std::string what;          // for errors: the step that the members are in
  std::vector<int> members;  // world ranks
  int self = 0;              // this rank's place among them
  std::chrono::milliseconds deadline;
};

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // Returns every member's piece, in order, when all have come. Throws Error (lost): at once when a member that has not
  // come has failed, died or ended; naming those missing when the deadline passes.
  virtual std::vector<Piece> meet(const Meeting& meeting, Piece own) = 0;
  // Throws Error (lost) when the rendezvous itself is gone.
  virtual void check() = 0;
};

}  // namespace tileway
