// Reads QSF files that another program wrote: without our tensor list, and perhaps without a
// metadata section. Tensors come from the headers in the layers, hyperparameters from the file's
// header unless a metadata section has them, and the tokenizer from a file that the user names.
// Only native programs do this, because compressed layers must be unpacked to find their tensors.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/byte_source.h"
#include "native/qsf_source.h"

namespace sluice::native {

struct ForeignQsf {
  gguf::Header header;  // owns all it points to
  std::unique_ptr<QsfSource> source;
};

// Whether the file is such a QSF file.
[[nodiscard]] bool is_foreign_qsf(io::ByteSource& file);

// `tokenizer`: metadata with tokenizer.* keys, or the text of a tokenizer.json; both may be null if
// the file has a tokenizer. Errors: those of qsf::parse; kBadTokenizer without a tokenizer;
// kUnsupportedArchitecture for hyperparameters that the header cannot express; kUnsupportedType.
struct TokenizerSource {
  const gguf::Header* header = nullptr;
  std::string json;
};
[[nodiscard]] Result<ForeignQsf> read_foreign_qsf(std::unique_ptr<io::ByteSource> file,
                                                  const TokenizerSource& tokenizer);

}  // namespace sluice::native
