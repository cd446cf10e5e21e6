// Writes the checkpoint tensors of a forward pass, for `dump` and `compare --layers`.
#pragma once

#include <string>

#include "cli/cli.h"

namespace sluice::cli {

struct DumpOptions {
  Common common;
  std::string tokens;  // "1,2,3"
  std::string image;   // a file: MODEL is a vision projector
  std::string out;     // directory
  std::string layer = "0";
};

struct Dumped {
  int32_t tokens = 0;
  int tensors = 0;
  std::string kernels;
};

// Errors: those of opening and running the model; kInvalidArgument for the tokens or the layer;
// kIo.
[[nodiscard]] Result<Dumped> write_dump(const DumpOptions& options);

}  // namespace sluice::cli
