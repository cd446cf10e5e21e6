// Runs a fuzz target over files and directories from the command line, without libFuzzer, so that
// the seed corpus and every input that once failed are part of the normal tests. Each file is also
// run at every shorter length of its first bytes, and at 256 more.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <vector>

#include "../extent.h"
#include "../file_contents.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void run_file(const std::filesystem::path& path) {
  const auto all = sluice::test::file_contents<std::vector<uint8_t>>(path);
  const auto every = static_cast<size_t>(sluice::test::extent(1024, 4096));
  for (size_t n = 0; n <= all.size(); n += n < every ? 1 : all.size() / 256 + 1) {
    auto exact = std::make_unique<uint8_t[]>(n);
    for (size_t i = 0; i < n; i++) exact[i] = all[i];
    LLVMFuzzerTestOneInput(exact.get(), n);
  }
  LLVMFuzzerTestOneInput(all.data(), all.size());
}

}  // namespace

int main(int argc, char** argv) {
  int n = 0;
  for (int i = 1; i < argc; i++) {
    if (!std::filesystem::is_directory(argv[i])) {
      run_file(argv[i]);
      n++;
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      run_file(entry.path());
      n++;
    }
  }
  std::printf("%d inputs\n", n);
  return n > 0 ? 0 : 1;
}
