// Reads what is needed to plan a model: the header of a GGUF or QSF file, those of all files of a
// split model, or the small files and shard headers of a Hugging Face directory. The opener does no
// I/O: it returns its next request, and the caller reads the bytes and supplies them. Native
// programs and the browser share this code. Every count and length is checked against a cap before
// it is used, and a failed allocation is an error.
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
  kFile,   // open `name` as file `file`, then call opened()
  kBytes,  // read [offset, offset + length) of file `file` by reserve() and supply()
  kText,   // read the small file `name`, at most `length` bytes, likewise, or call absent()
  kDone,   // header() is complete
};

struct FileRequest {
  FileRequestKind want = FileRequestKind::kDone;
  uint32_t file = 0;      // index of the model's file, as in FillRequest::file
  std::string name;       // kFile, kText: a path, a URL with its query, or a chosen file's name
  uint32_t choice = 0;    // kFile, kText: index in Source::names
  uint64_t offset = 0;    // kBytes, in bytes
  uint64_t length = 0;    // kBytes, kText: in bytes
  bool optional = false;  // kText: the file may be missing
};

// What to open: an address, or files chosen by the user (blobs).
struct Source {
  std::string address;             // a path or an http(s) URL
  bool directory = false;          // the path is a folder on disk; URLs show it by themselves
  std::vector<std::string> names;  // of the chosen files; the address is then ignored
  uint32_t described = 0;          // > 0: the file was made by gguf::write_placed for so many files
  bool projector = false;          // of a directory: the vision projector, not the text model
};

struct HeaderLoader;

class Opener {
 public:
  explicit Opener(Source source);
  // For programs that link the code of only one kind.
  [[nodiscard]] static Opener of_file(Source source);
  [[nodiscard]] static Opener of_directory(Source source);
  ~Opener();
  Opener(const Opener&) = delete;
  Opener& operator=(const Opener&) = delete;

  // The next request; it stays the same until it is answered. Errors: those of the supplied bytes,
  // naming the file if there are several. They are final.
  [[nodiscard]] Result<FileRequest> need() const;

  // Answers to a request. Errors: kInvalidArgument when the call does not fit need(), which then
  // stays the same.
  [[nodiscard]] Status opened(uint64_t size);
  // The file does not exist; `why` is for the message. If it is not optional, need() then returns
  // kNotFound.
  [[nodiscard]] Status absent(std::string_view why);
  // The buffer for the `size` bytes of kBytes or kText. The driver fills it and calls supply().
  // Errors: kBadHeader for a text that is too large, kOutOfMemory; the request then stays pending.
  [[nodiscard]] Result<std::span<uint8_t>> reserve(uint64_t size);
  [[nodiscard]] Status supply();

  // The model, once need() returns kDone. Views in the header live as long as the opener.
  [[nodiscard]] gguf::Header& header();
  // The runs of a QSF file that contain its tensors; empty for every other model.
  [[nodiscard]] std::vector<qsf::Run>& qsf_runs();
  // Computed bytes, which the model reads as its last file; empty: none.
  [[nodiscard]] std::span<const uint8_t> synthesized_file() const;
  // Descriptions of tensors that are computed on reading, as one more file after that; empty: none.
  [[nodiscard]] std::vector<hf::Derived>& derived();

 private:
  explicit Opener(std::unique_ptr<HeaderLoader> loader);

  std::unique_ptr<HeaderLoader> loader_;
};

}  // namespace sluice::open
