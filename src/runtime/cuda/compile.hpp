// Compiling kernels when the program runs, by NVRTC, to images that are kept on disk.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tileway::cuda {

// The device headers, which the library carries: names as they are included ("tileway/signal.cuh"), and their text.
struct Header {
  const char* name;
  const char* text;
};
const std::vector<Header>& device_headers();

struct Image {
  std::string cubin;
  std::string report;  // the assembler's words: registers, spills, shared memory of each kernel
  bool from_cache = false;
};

// Whether NVRTC is there, and which; or why not.
bool compiler_found();
std::string compiler_text();

// Compiles a translation unit that may include device headers, to machine code for one architecture ("sm_90a"). Images
// are kept under the cache directory (env::cache_directory, made private) by the text, the headers, the architecture
// and the compiler's version; written under another name and then renamed, so that processes may share it; checked
// before they are used, and made anew where they are damaged. Throws Error (system) without NVRTC, and Error (invalid)
// with the compiler's words for what does not compile.
Image compile(std::string_view source, std::string_view name, std::string_view architecture);

// The same unit as PTX, the text between the language and machine code, for whoever wants to see which instructions
// were asked for. Not kept.
std::string ptx_of(std::string_view source, std::string_view name, std::string_view architecture);

}  // namespace tileway::cuda
