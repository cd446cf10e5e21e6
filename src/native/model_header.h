// Reads a model's header from a file, a directory, a URL or a reference, and keeps its files open.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gguf/gguf.h"
#include "io/byte_source.h"
#include "native/qsf_source.h"
#include "open/opener.h"

namespace sluice::native {

// The header of a model and the open sources of its files. `opener` owns the data that the header's
// views point to.
struct ModelHeader {
  std::unique_ptr<open::Opener> opener;
  gguf::Header header;
  std::vector<std::unique_ptr<io::ByteSource>> sources;
  std::vector<std::string> addresses;  // of the files that hold them
  bool remote = false;                 // the sources are URLs
  bool offline = false;                // a file came from the cache because its server is away
  uint64_t held = 0;                   // bytes of the budget that the sources take
  Decompression decompression = Decompression::kNone;  // of reads
  io::DirectIo direct_io = io::DirectIo::kOff;
  bool no_page_cache = false, join_reads = true;  // as io::OpenOptions says
};

// Reads the headers of `path` (a file or an http(s) URL; the first part of a split model; a Hugging
// Face directory; or a hf: reference). Errors: those of the sources, of open::Opener and of
// model_source().
[[nodiscard]] Result<ModelHeader> read_header(const std::string& path,
                                              const io::OpenOptions& options);
// The same for a vision projector: a GGUF file, or that of a Hugging Face directory with both.
[[nodiscard]] Result<ModelHeader> read_projector_header(const std::string& path,
                                                        const io::OpenOptions& options);
// The same for one GGUF file that the caller has opened.
[[nodiscard]] Result<ModelHeader> read_header(std::unique_ptr<io::ByteSource> file);

}  // namespace sluice::native
