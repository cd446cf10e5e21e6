// What has to be read before a model can be planned: the header of a GGUF file, those of all parts
// of a split one, or the small files and shard headers of a Hugging Face directory. Without I/O:
// the opener says what it wants next, whoever drives it reads that and hands it over, natively and
// in the browser alike. Every count and length is capped before it is believed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"

namespace sluice::open {

inline constexpr uint64_t kMaxSmallFile = 128ull << 20;  // tokenizer.json is the largest

enum class Want : uint8_t {
  kFile,   // open `name` as file `file`; answer opened() or absent()
  kBytes,  // [offset, offset + length) of file `file`; answer supply()
  kText,   // the whole of the small file `name`; answer supply(), or absent() when optional
  kDone,   // header() is complete
};

struct Need {
  Want want = Want::kDone;
  uint32_t file = 0;  // number of the model's file, as FillRequest::file counts them
  std::string name;   // address: a path or URL, query included
  uint64_t offset = 0, length = 0;
  bool optional = false;  // kText: absent() is an answer
};

// What `address` (a path or an http(s) URL) names.
struct Source {
  std::string address;
  bool directory = false;  // a path that is a folder on disk; URLs tell by themselves
  // Blobs: the names of what was chosen; the address is then the first of them.
  std::vector<std::string> names;
};

class Opener {
 public:
  // Errors: kInvalidArgument for an address that can be no model (a later part of a split one …).
  [[nodiscard]] static Result<std::unique_ptr<Opener>> create(Source source);
  ~Opener();

  // The next thing wanted; the same until it is answered. Errors: those of parsing what was
  // supplied, each naming the file; they are final.
  [[nodiscard]] Result<Need> need();
  [[nodiscard]] Status opened(uint64_t size);
  [[nodiscard]] Status absent(const std::string& why);
  // `bytes` answers need() exactly. Views into them may be kept until the opener is gone: they
  // are the opener's from here on.
  [[nodiscard]] Status supply(std::vector<uint8_t> bytes);

  // Once need() says kDone. The header's views live as long as the opener.
  [[nodiscard]] gguf::Header& header();
  [[nodiscard]] uint32_t n_files() const;
  // Bytes that were computed here and are read as file n_files() - 1 of the model; empty: none.
  [[nodiscard]] std::span<const uint8_t> synthesized_file() const;
  // Bytes held at this moment.
  [[nodiscard]] uint64_t memory_bytes() const;

 private:
  struct Impl;
  explicit Opener(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// "model-00001-of-00003.gguf" and index 1: "model-00002-of-00003.gguf", query kept; "" when `name`
// is not the first part of a split model with `count` parts.
[[nodiscard]] std::string split_name(std::string_view name, uint32_t index, uint32_t count);

}  // namespace sluice::open
