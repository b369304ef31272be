#include "runtime/cuda/compile.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>

#include "base/env.hpp"
#include "base/hash.hpp"
#include "runtime/cuda/library.hpp"
#include "tileway/error.hpp"

namespace tileway::cuda {
namespace {

namespace fs = std::filesystem;

using Program = struct _nvrtcProgram*;

// NVRTC, as far as it is used; its functions return 0 for success.
struct Nvrtc {
  Library library;
  int (*Version)(int* major, int* minor) = nullptr;
  const char* (*GetErrorString)(int result) = nullptr;
  int (*CreateProgram)(Program* program, const char* source, const char* name, int headers, const char* const* texts,
                       const char* const* names) = nullptr;
  int (*DestroyProgram)(Program* program) = nullptr;
  int (*CompileProgram)(Program program, int count, const char* const* options) = nullptr;
  int (*GetProgramLogSize)(Program program, std::size_t* bytes) = nullptr;
  int (*GetProgramLog)(Program program, char* log) = nullptr;
  int (*GetCUBINSize)(Program program, std::size_t* bytes) = nullptr;
  int (*GetCUBIN)(Program program, char* cubin) = nullptr;
  int (*GetPTXSize)(Program program, std::size_t* bytes) = nullptr;
  int (*GetPTX)(Program program, char* ptx) = nullptr;
  int major = 0;
  int minor = 0;
  bool usable = false;

  Nvrtc() : library(files()) {
    bool all = library.found();
    const auto take = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.find(name));
      all = all && function;
    };
    take(Version, "nvrtcVersion");
    take(GetErrorString, "nvrtcGetErrorString");
    take(CreateProgram, "nvrtcCreateProgram");
    take(DestroyProgram, "nvrtcDestroyProgram");
    take(CompileProgram, "nvrtcCompileProgram");
    take(GetProgramLogSize, "nvrtcGetProgramLogSize");
    take(GetProgramLog, "nvrtcGetProgramLog");
    take(GetCUBINSize, "nvrtcGetCUBINSize");
    take(GetCUBIN, "nvrtcGetCUBIN");
    take(GetPTXSize, "nvrtcGetPTXSize");
    take(GetPTX, "nvrtcGetPTX");
    usable = all && Version(&major, &minor) == 0;
  }

  static std::vector<std::string> files() {
    std::vector<std::string> all{"libnvrtc.so.13", "libnvrtc.so.12"};
    const fs::path file = env::nvrtc();
    if (file.empty()) return all;
    all.insert(all.begin(), file.string());
    // NVRTC opens its second half by its bare name, which is found once it has been opened by its path.
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(file.parent_path(), ignored)) {
      if (entry.path().filename().string().starts_with("libnvrtc-builtins.so"))
        const Library builtins({entry.path().string()});
    }
    return all;
  }
};

const Nvrtc& nvrtc() {
  static const Nvrtc once;
  return once;
}

std::string log_of(const Nvrtc& compiler, Program program) {
  std::size_t bytes = 0;
  if (compiler.GetProgramLogSize(program, &bytes) != 0 || bytes <= 1) return "";
  std::string log(bytes, '\0');
  compiler.GetProgramLog(program, log.data());
  log.resize(bytes - 1);
  return log;
}

void require_compiler() {
  TW_REQUIRE(nvrtc().usable, ErrorKind::system, .where = "NVRTC", .what = "it is not there, and kernels need it",
             .got = compiler_text(), .hint = "Install the CUDA toolkit, or pip install nvidia-cuda-nvrtc");
}

// What the compiler made and what it said.
struct Made {
  std::string code;
  std::string log;
};

// `size_of` and `get` are those of the form that is wanted: machine code or PTX.
Made make(const std::string& source, const std::string& name, const std::string& architecture,
          int (*size_of)(Program, std::size_t*), int (*get)(Program, char*)) {
  const Nvrtc& compiler = nvrtc();
  std::vector<const char*> names;
  std::vector<const char*> texts;
  for (const Header& header : device_headers()) {
    names.push_back(header.name);
    texts.push_back(header.text);
  }
  Program program = nullptr;
  TW_REQUIRE(compiler.CreateProgram(&program, source.c_str(), name.c_str(), static_cast<int>(names.size()),
                                    texts.data(), names.data()) == 0,
             ErrorKind::system, .where = "NVRTC", .what = "no program could be made");
  const std::string target = "--gpu-architecture=" + architecture;
  const std::array<const char*, 4> options{target.c_str(), "--std=c++20", "-default-device", "--ptxas-options=-v"};
  const int result = compiler.CompileProgram(program, static_cast<int>(options.size()), options.data());
  Made made{"", log_of(compiler, program)};
  std::size_t bytes = 0;
  if (result == 0 && size_of(program, &bytes) == 0) {
    made.code.resize(bytes);
    get(program, made.code.data());
  }
  compiler.DestroyProgram(&program);
  TW_REQUIRE(!made.code.empty(), ErrorKind::invalid, .where = fmt::format("kernel {} for {}", name, architecture),
             .what = "does not compile", .got = made.log.empty() ? compiler.GetErrorString(result) : made.log);
  return made;
}

// Images in files: a line with the lengths and the hash of what follows, the code and the report.
std::string header_of(const Image& image) {
  return fmt::format("tileway image {} {} {:016x}\n", image.cubin.size(), image.report.size(),
                     fnv1a(image.cubin + image.report));
}

std::optional<Image> load_image(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (!std::getline(file, line)) return {};
  const std::string rest{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::size_t length = 0;
  if (std::sscanf(line.c_str(), "tileway image %zu", &length) != 1 || length > rest.size()) return {};
  Image image{rest.substr(0, length), rest.substr(length), true};
  if (line + "\n" != header_of(image)) return {};
  return image;
}

// What cannot be kept is made again next time.
void keep_image(const fs::path& path, const Image& image) {
  const fs::path draft = path.string() + fmt::format(".{}", getpid());
  {
    std::ofstream file(draft, std::ios::binary);
    file << header_of(image) << image.cubin << image.report;
    if (!file.good()) return;
  }
  std::error_code ignored;
  fs::rename(draft, path, ignored);
}

// Ours alone: others could plant code.
fs::path private_cache() {
  fs::path directory = env::cache_directory();
  std::error_code error;
  fs::create_directories(directory, error);
  struct stat info {};
  if (error || stat(directory.c_str(), &info) != 0 || info.st_uid != getuid()) return {};
  if ((info.st_mode & 077) != 0 && chmod(directory.c_str(), 0700) != 0) return {};
  return directory;
}

}  // namespace

bool compiler_found() { return nvrtc().usable; }

std::string compiler_text() {
  if (!nvrtc().usable) return nvrtc().library.where();
  return fmt::format("NVRTC {}.{} ({})", nvrtc().major, nvrtc().minor, nvrtc().library.where());
}

Image compile(std::string_view source, std::string_view name, std::string_view architecture) {
  require_compiler();
  std::string key = fmt::format("{} {} {}.{}\n{}", name, architecture, nvrtc().major, nvrtc().minor, source);
  for (const Header& header : device_headers()) key += header.text;
  // Ranks that are threads of one process want the same image at the same time: one makes it.
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  const fs::path directory = private_cache();
  const fs::path path = directory / fmt::format("{}-{}-{:016x}.cubin", name, architecture, fnv1a(key));
  if (!directory.empty()) {
    if (std::optional<Image> image = load_image(path)) return *std::move(image);
  }
  Made made =
      make(std::string(source), std::string(name), std::string(architecture), nvrtc().GetCUBINSize, nvrtc().GetCUBIN);
  Image image{std::move(made.code), std::move(made.log)};
  if (!directory.empty()) keep_image(path, image);
  return image;
}

std::string ptx_of(std::string_view source, std::string_view name, std::string_view architecture) {
  require_compiler();
  std::string ptx =
      make(std::string(source), std::string(name), std::string(architecture), nvrtc().GetPTXSize, nvrtc().GetPTX).code;
  while (!ptx.empty() && ptx.back() == '\0') ptx.pop_back();
  return ptx;
}

}  // namespace tileway::cuda
