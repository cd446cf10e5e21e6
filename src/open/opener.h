// What has to be read before a model can be planned: the header of a GGUF or QSF file, those of all
// parts of a split one, or the small files and shard headers of a Hugging Face directory. Without
// I/O: the opener says what it wants next, whoever drives it reads that and hands it over, natively
// and in the browser alike. Every count and length is capped before it is believed, and memory that
// cannot be had is an error.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "hf/tensor_transform.h"
#include "qsf/qsf.h"

namespace sluice::open {

inline constexpr uint64_t kMaxSmallFile = 128ull << 20;  // tokenizer.json is the largest

enum class FileRequestKind : uint8_t {
  kFile,   // open `name` as file `file`; answer opened()
  kBytes,  // [offset, offset + length) of file `file`; answer reserve() and supply()
  kText,   // the whole of the small file `name`, of at most `length` bytes; the same, or absent()
  kDone,   // header() is complete
};

struct FileRequest {
  FileRequestKind want = FileRequestKind::kDone;
  uint32_t file = 0;      // number of the model's file, as FillRequest::file counts them
  std::string name;       // kFile, kText: a path or URL, query included; of chosen files the name
  uint32_t choice = 0;    // kFile, kText: which of Source::names that is
  uint64_t offset = 0;    // kBytes, in bytes
  uint64_t length = 0;    // kBytes, kText: in bytes
  bool optional = false;  // kText: absent() is an answer like any other
};

// What is to be opened: an address, or files that somebody chose (blobs).
struct Source {
  std::string address;             // a path or an http(s) URL
  bool directory = false;          // the path is a folder on disk; other addresses tell
  std::vector<std::string> names;  // of the chosen files; the address then counts for nothing
  uint32_t described = 0;          // > 0: the file is what gguf::write_placed made of so many files
};

struct HeaderLoader;

class Opener {
 public:
  explicit Opener(Source source);
  // The same for programs that have no code for the other kind.
  [[nodiscard]] static Opener of_file(Source source);
  [[nodiscard]] static Opener of_directory(Source source);
  ~Opener();
  Opener(const Opener&) = delete;
  Opener& operator=(const Opener&) = delete;

  // What is wanted next; the same until it is answered. Errors: those of what was supplied, naming
  // the file where there are several; they are final.
  [[nodiscard]] Result<FileRequest> need() const;

  // Answers. kInvalidArgument: this is no answer to need(), which stays as it is.
  [[nodiscard]] Status opened(uint64_t size);
  // `why` says how it is known. For a file that is not optional need() then says kNotFound.
  [[nodiscard]] Status absent(std::string_view why);
  // Where the driver writes the `size` bytes that answer kBytes or kText, before it calls supply().
  // Errors: kBadHeader for a text that is too large, kOutOfMemory; what was wanted still is.
  [[nodiscard]] Result<std::span<uint8_t>> reserve(uint64_t size);
  [[nodiscard]] Status supply();

  // The model, once need() says kDone. Views in the header live as long as the opener.
  [[nodiscard]] gguf::Header& header();
  // Of a QSF file the runs that its header's tensors lie in; empty for every other model.
  [[nodiscard]] std::vector<qsf::Run>& qsf_runs();
  // Bytes that were computed and are read as the last file of the model; empty: there are none.
  [[nodiscard]] std::span<const uint8_t> synthesized_file() const;
  // What one more file, behind that, is made of when it is read; empty: there is none.
  [[nodiscard]] std::vector<hf::Derived>& derived();

 private:
  explicit Opener(std::unique_ptr<HeaderLoader> course);

  std::unique_ptr<HeaderLoader> course_;
};

}  // namespace sluice::open
