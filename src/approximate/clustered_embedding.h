// A token embedding that a QSF file stores as cluster centres and remainders
// (gguf/embedding_clusters.h): the program reads the remainders, and the mode adds the centres.
#pragma once

#include <memory>

#include "base/status.h"
#include "gguf/gguf.h"
#include "model/program.h"
#include "session/approximation.h"

namespace sluice::approximate {

// Null: the file stores the embedding itself. Errors: kBadHeader, naming the key.
[[nodiscard]] Result<std::unique_ptr<session::Approximation>> make_clustered_embedding(
    const gguf::Header& header, int32_t mode, model::Program* program);

}  // namespace sluice::approximate
