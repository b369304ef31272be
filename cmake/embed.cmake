# Writes files into a C++ source as strings: cmake -DOUT=x.cpp -DROOT=dir -DFILES=a;b -P embed.cmake
set(text "#include \"runtime/cuda/compile.hpp\"\n\nnamespace tileway::cuda {\n\n")
string(APPEND text "const std::vector<Header>& device_headers() {\n  static const std::vector<Header> headers{\n")
foreach(file IN LISTS FILES)
  file(READ "${ROOT}/${file}" content)
  string(APPEND text "      {\"${file}\", R\"embedded(${content})embedded\"},\n")
endforeach()
string(APPEND text "  };\n  return headers;\n}\n\n}  // namespace tileway::cuda\n")
file(WRITE "${OUT}" "${text}")
