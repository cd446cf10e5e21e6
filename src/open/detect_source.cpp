// Detects whether a source is a file or a directory. This has a file of its own, so that a program
// that only calls of_file() does not link the code for directories.
#include <algorithm>

#include "open/address.h"
#include "open/header_loader.h"

namespace sluice::open {
namespace {

std::unique_ptr<HeaderLoader> loader_of(Source source) {
  bool directory = source.directory || names_directory(source.address);
  if (!source.names.empty()) {
    directory = std::any_of(source.names.begin(), source.names.end(),
                            [](const std::string& name) { return base_name(name) == kConfigName; });
  }
  return directory ? directory_loader(std::move(source)) : file_loader(std::move(source));
}

}  // namespace

Opener::Opener(Source source) : Opener(loader_of(std::move(source))) {}

}  // namespace sluice::open
