// Writes what each operation of a vision encoder makes of a picture, for `dump`.
#pragma once

#include "cli/dump.h"
#include "cli/pictures.h"

namespace sluice::cli {

// Dumped::tokens are the picture's. Errors: those of the projector, the picture and the encoder;
// kInvalidArgument for the layer; kIo.
[[nodiscard]] Result<Dumped> write_projector_dump(const DumpOptions& options,
                                                  const ImageReading& reading);

}  // namespace sluice::cli
