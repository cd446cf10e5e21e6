// Reads a whole file at once. Tests are compiled without optimization, where stream iterators take
// 50 ns a byte.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace sluice::test {

// The bytes of a file, a std::string or a std::vector<uint8_t>; empty if it cannot be read.
template <class Bytes = std::string>
Bytes file_contents(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  Bytes out;
  if (!in) return out;
  out.resize(static_cast<size_t>(in.tellg()));
  in.seekg(0);
  in.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
  return out;
}

}  // namespace sluice::test
