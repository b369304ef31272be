// Hostile safetensors files are refused with a message that says what is wrong and where.
#include "tileway/safetensors.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <random>

#include "support/safetensors_file.hpp"
#include "tileway/error.hpp"

namespace tileway {
namespace {

using testing_support::safetensors_bytes;
using testing_support::TemporaryFile;

template <typename Action>
void expect_refused(const Action& action, const std::string& message) {
  try {
    action();
    ADD_FAILURE() << "accepted; expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid);
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

void expect_bytes_refused(const std::string& bytes, const std::string& message) {
  const TemporaryFile file(bytes);
  expect_refused([&] { SafeTensors::open(file.path()); }, "[tileway] " + file.path());
  expect_refused([&] { SafeTensors::open(file.path()); }, message);
}

void expect_header_refused(const std::string& header, const std::string& message, std::size_t data_bytes = 8) {
  SCOPED_TRACE(header.substr(0, 200));
  expect_bytes_refused(safetensors_bytes(header, data_bytes), message);
}

// A header of one tensor "t" with this description.
void expect_tensor_refused(const std::string& description, const std::string& message, std::size_t data_bytes = 8) {
  expect_header_refused(R"({"t":)" + description + "}", message, data_bytes);
}

std::string repeated(const std::string& text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

TEST(SafeTensorsErrors, PathsThatAreNotFiles) {
  expect_refused([] { SafeTensors::open(::testing::TempDir() + "tileway-no-such-file"); },
                 "cannot open the file; got No such file or directory. Check the path and its permissions.");
  expect_refused([] { SafeTensors::open(::testing::TempDir()); },
                 "not a regular file; expected a safetensors file, got a directory.");
  expect_refused([] { SafeTensors::open(""); }, "cannot open the file");
  const TemporaryFile pipe("");
  std::filesystem::remove(pipe.path());
  ASSERT_EQ(::mkfifo(pipe.path().c_str(), 0600), 0);
  expect_refused([&] { SafeTensors::open(pipe.path()); },
                 "not a regular file; expected a safetensors file, got a special");
}

TEST(SafeTensorsErrors, FilesTooShortForTheirHeader) {
  expect_bytes_refused("", "the file is empty");
  expect_bytes_refused("1234567", "the file is too short to hold a header length; expected at least 8 bytes, got 7.");
  expect_bytes_refused(safetensors_bytes("{}", 0).substr(0, 9),
                       "the header is longer than the file; expected 2 bytes, got 1.");
  expect_bytes_refused(std::string(8, '\xFF') + "{}",
                       "the header length is too large; expected at most 100000000 bytes, got 18446744073709551615.");
}

TEST(SafeTensorsErrors, HeadersThatAreNotJsonObjects) {
  expect_header_refused("", "the header is not a JSON object");
  expect_header_refused("[]", "the header is not a JSON object");
  expect_header_refused("17", "the header is not a JSON object");
  expect_header_refused("\xEF\xBB\xBF{}", "the header is not a JSON object; expected { as its first byte");
  expect_header_refused("{", "the header is not valid JSON; got an error at byte 2 of the header.");
  expect_header_refused("{}}", "the header is not valid JSON");
  expect_header_refused("{\"__metadata__\":{},}", "the header is not valid JSON");
  expect_header_refused(std::string("{}\0trailing", 11), "the header is not valid JSON; got a zero byte.");
  expect_header_refused("{\"\xC3\x28\":1}", "the header is not valid UTF-8");
  expect_header_refused("{\"\xFF\":1}", "the header is not valid UTF-8");
  expect_header_refused(R"({"\ud800":1})", "the header is not valid JSON");
}

TEST(SafeTensorsErrors, NestingIsRefusedWhereItBegins) {
  const std::size_t deep = 100'000;
  expect_header_refused(R"({"t":)" + repeated("[", deep), "\"t\" is not described by an object; got a list.");
  expect_header_refused(repeated(R"({"t":)", deep), "tensor \"t\": an unknown key");
  expect_tensor_refused(R"({"shape":)" + repeated("[", deep), "shape has a wrong value");
  expect_tensor_refused(R"({"dtype":)" + repeated("[", deep),
                        "dtype has the wrong type; expected a string, got a list.");
  expect_header_refused(R"({"__metadata__":)" + repeated(R"({"a":)", deep), "a value of __metadata__ is not a string");
}

TEST(SafeTensorsErrors, DescriptionsThatAreIncompleteOrOfTheWrongType) {
  expect_tensor_refused("7", "\"t\" is not described by an object; got 7.");
  expect_tensor_refused("null", "\"t\" is not described by an object; got null.");
  expect_tensor_refused(R"({"shape":[2],"data_offsets":[0,8]})", "tensor \"t\": dtype is missing");
  expect_tensor_refused(R"({"dtype":"F32","data_offsets":[0,8]})", "tensor \"t\": shape is missing");
  expect_tensor_refused(R"({"dtype":"F32","shape":[2]})", "tensor \"t\": data_offsets is missing");
  expect_tensor_refused(R"({"dtype":"F32","shape":2})",
                        "shape has the wrong type; expected a list of whole numbers, got 2.");
  expect_tensor_refused(R"({"dtype":32})", "dtype has the wrong type; expected a string, got 32.");
  expect_tensor_refused(R"({"dtype":"F31","shape":[2],"data_offsets":[0,8]})", "an unknown dtype");
  expect_tensor_refused(R"({"type":"F32"})", "an unknown key; expected dtype, shape and data_offsets, got \"type\".");
  expect_header_refused(R"({"__metadata__":{"a":1}})", "a value of __metadata__ is not a string; got 1.");
  expect_header_refused(R"({"__metadata__":[]})", "\"__metadata__\" is not described by an object; got a list.");
}

TEST(SafeTensorsErrors, DuplicateKeys) {
  const std::string entry = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  expect_header_refused(R"({"t":)" + entry + R"(,"t":)" + entry + "}",
                        "a duplicate key; expected each name once, got \"t\".");
  expect_tensor_refused(R"({"dtype":"F32","dtype":"F32"})",
                        "tensor \"t\": a duplicate key; expected each key once, got \"dtype\".");
  expect_header_refused(R"({"__metadata__":{"a":"1","a":"2"}})", "a duplicate key; expected each key once, got \"a\".");
  expect_header_refused(R"({"__metadata__":{},"__metadata__":{}})", "a duplicate key");
}

TEST(SafeTensorsErrors, Shapes) {
  const auto refused = [](const std::string& shape, const std::string& message) {
    expect_tensor_refused(R"({"dtype":"U8","shape":)" + shape + R"(,"data_offsets":[0,8]})", message);
  };
  refused("[-2]", "shape has a wrong value; expected whole numbers from 0 up to 2^64 - 1, got -2.");
  refused("[2.5]", "shape has a wrong value; expected whole numbers from 0 up to 2^64 - 1, got 2.5.");
  refused("[1e3]", "shape has a wrong value");
  refused("[\"8\"]", "shape has a wrong value");
  refused("[18446744073709551616]", "shape has a wrong value");
  refused("[18446744073709551615]", "the tensor is too large; got an extent of 18446744073709551615.");
  refused("[4294967296,4294967296]", "the tensor is too large; expected at most 2^40 elements");
  refused("[0,1099511627776,1099511627776]", "the tensor is too large; expected at most 2^40 elements");
  refused("[1,1,1,1,1,1,8]", "tensor \"t\": too many dimensions; expected at most 6.");
  refused("[" + repeated("1,", 100'000) + "8]", "too many dimensions");
  expect_tensor_refused(R"({"dtype":"F4","shape":[3],"data_offsets":[0,2]})", "its elements do not fill whole bytes");
}

TEST(SafeTensorsErrors, Offsets) {
  const auto refused = [](const std::string& offsets, const std::string& message) {
    expect_tensor_refused(R"({"dtype":"F32","shape":[2],"data_offsets":)" + offsets + "}", message);
  };
  refused("[]", "data_offsets have too few numbers; expected two: begin and end, got 0.");
  refused("[0]", "data_offsets have too few numbers");
  refused("[0,8,8]", "data_offsets have too many numbers");
  refused("[-8,0]", "data_offsets has a wrong value; expected whole numbers from 0 up to 2^64 - 1, got -8.");
  refused("[0,8.0]", "data_offsets has a wrong value");
  refused("[8,0]", "data_offsets run backwards; expected begin <= end, got [8, 0].");
  refused("[0,16]", "its data lie outside the file; expected offsets up to 8, got [0, 16]. The file may be truncated");
  refused("[18446744073709551608,18446744073709551615]", "its data lie outside the file");
  refused("[0,4]", "the length of its data does not match its shape; expected 8 bytes for F32 [2], got 4.");
}

TEST(SafeTensorsErrors, BytesOfSeveralTensorsOrOfNone) {
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  expect_header_refused(two("[0,4]", "[2,6]"),
                        "tensor \"b\": its data overlap those of another tensor; expected begin >= 4");
  expect_header_refused(two("[0,4]", "[0,4]"), "overlap those of another tensor", 4);
  expect_header_refused(two("[0,4]", "[6,10]"), "tensor \"b\": bytes before its data belong to no tensor", 10);
  expect_header_refused(two("[0,4]", "[4,8]"), "bytes at the end belong to no tensor; expected 8 bytes of data, got 9.",
                        9);
}

TEST(SafeTensorsErrors, TensorsThatCannotBeLoaded) {
  const TemporaryFile file(safetensors_bytes(R"({"t":{"dtype":"F8_E5M2","shape":[8],"data_offsets":[0,8]}})", 8));
  const SafeTensors tensors = SafeTensors::open(file.path());
  expect_refused(
      [&] { tensors.load("t"); },
      "tensor \"t\": a dtype that tileway does not have; expected F32, BF16, F16, F8_E4M3, I32 or I64, got F8_E5M2.");
  expect_refused([&] { tensors.dtype("t"); }, "a dtype that tileway does not have");
  expect_refused([&] { tensors.load("u"); }, "tensor \"u\": no such tensor in the file; expected one of its 1 names.");
  expect_refused([&] { tensors.shape("u"); }, "no such tensor");
}

TEST(SafeTensorsErrors, AFileThatBecomesShorterWhileOpen) {
  const TemporaryFile file(safetensors_bytes(R"({"t":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}})", 8));
  const SafeTensors tensors = SafeTensors::open(file.path());
  std::filesystem::resize_file(file.path(), 20);
  expect_refused([&] { tensors.load("t"); }, "the file became shorter while it was open");
}

TEST(SafeTensorsErrors, MessagesShowNamesShortAndPrintable) {
  expect_header_refused(R"({"a\u001b[31m\"":7})", R"("a\x1b[31m\x22" is not described by an object)");
  expect_header_refused(R"({")" + std::string(100'000, 'x') + R"(":7})", repeated("x", 80) + "...\" is not described");
}

// Any bytes are either a file or an Error: thousands of small damages to a valid file, the same on every run.
TEST(SafeTensorsErrors, DamagedFilesNeverDoAnythingElse) {
  const std::string valid = safetensors_bytes(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"c":{"dtype":"I64","shape":[],"data_offsets":[32,40]}})",
      40);
  const std::vector<std::string> pieces = {"[",      "]",          "{",      "}",       ",",
                                           ":",      "\"",         "-",      "0",       "9",
                                           "e9",     ".5",         "null",   "\\u0000", "99999999999999999999",
                                           "\"a\":", "\"dtype\":", "\"F4\"", "\xFF",    "\n"};
  std::mt19937 random(
      20240229);  // its numbers are the same with every standard library; those of distributions are not
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };

  const TemporaryFile file(valid);
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string bytes = valid;
    for (std::size_t damages = 1 + below(3); damages > 0 && !bytes.empty(); --damages) {
      const std::size_t at = below(bytes.size());
      switch (below(6)) {
        case 0:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
          break;
        case 1:
          bytes[at] = static_cast<char>(random());
          break;
        case 2:
          bytes.resize(at);
          break;
        case 3:
          bytes.erase(at, 1 + below(8));
          break;
        case 4:
          bytes.insert(at, pieces[below(pieces.size())]);
          break;
        case 5:
          bytes.insert(at, bytes.substr(below(bytes.size()), below(60)));
          break;
      }
    }
    // Half of them get a length that fits again, so that the damage reaches the parser.
    if (bytes.size() > 8 && below(2) == 0) {
      const std::size_t header = std::min(bytes.rfind('}') + 1, bytes.size()) - 8;
      if (header < bytes.size()) bytes.replace(0, 8, safetensors_bytes(std::string(header, ' '), 0).substr(0, 8));
    }
    file.write(bytes);
    try {
      const SafeTensors tensors = SafeTensors::open(file.path());
      for (const std::string& name : tensors.names()) {
        EXPECT_LE(tensors.load(name).bytes(), bytes.size());
      }
      ++accepted;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid) << error.what();
      ++refused;
    }
  }
  // Both happen; otherwise the damage is too small or too great to test anything.
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace tileway
