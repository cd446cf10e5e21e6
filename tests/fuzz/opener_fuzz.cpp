// Fuzzes opening models. The first line is an address, or several names of chosen files. The rest
// is files, each after a 3-byte length, which answer the opener's requests in order. A length with
// its highest bit set is a wrong answer: absent, or of another size. For any input every need() can
// be answered or is an error, and no more is read than a file has.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "open/opener.h"

namespace {

using sluice::open::FileRequest;
using sluice::open::FileRequestKind;
using sluice::open::Opener;

constexpr int kMaxAnswers = 3000;

void check(bool ok) {
  if (!ok) std::abort();
}

struct Input {
  const uint8_t* data;
  size_t size;

  // The next file. `odd` is set for a wrong answer.
  std::string file(bool* odd) {
    *odd = false;
    if (size < 3) return {};
    size_t n = static_cast<size_t>(data[0]) | static_cast<size_t>(data[1]) << 8 |
               static_cast<size_t>(data[2] & 0x7f) << 16;
    *odd = (data[2] & 0x80) != 0;
    data += 3;
    size -= 3;
    n = std::min(n, size);
    std::string out(reinterpret_cast<const char*>(data), n);
    data += n;
    size -= n;
    return out;
  }
};

sluice::open::Source source_of(Input* input) {
  const uint8_t* end = std::find(input->data, input->data + input->size, '\n');
  std::string line(input->data, end);
  input->size -= std::min(input->size, line.size() + 1);
  input->data = end + (input->size > 0 ? 1 : 0);
  sluice::open::Source source;
  for (size_t at = line.find('|'); at != std::string::npos; at = line.find('|')) {
    source.names.push_back(line.substr(0, at));
    line.erase(0, at + 1);
  }
  source.address = line;
  source.directory = line.empty();
  return source;
}

// Answers a request with the wrong kind of call.
void answer_oddly(Opener& opener, const FileRequest& need, const std::string& text) {
  const bool asks_for_bytes = need.want == FileRequestKind::kBytes;
  check(opener.supply().code() == sluice::Code::kInvalidArgument);
  check(!asks_for_bytes || !opener.reserve(need.length + 1).ok());
  check(!asks_for_bytes || !opener.opened(text.size()).ok());
  check(opener.absent(text).ok() != asks_for_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input{data, size};
  Opener opener(source_of(&input));
  std::vector<std::string> files;
  for (int i = 0;; i++) {
    check(i < kMaxAnswers);
    const auto need = opener.need();
    if (!need.ok()) {
      check(!need.status().message().empty());
      return 0;
    }
    if (need->want == FileRequestKind::kDone) break;
    if (need->want == FileRequestKind::kBytes) {
      const std::string& file = files.at(need->file);
      check(need->length > 0 && need->offset + need->length <= file.size());
      const auto place = opener.reserve(need->length);
      check(place.ok() && place->size() == need->length);
      std::copy_n(file.begin() + static_cast<std::ptrdiff_t>(need->offset), place->size(),
                  place->begin());
      check(opener.supply().ok());
      continue;
    }
    bool odd = false;
    std::string file = input.file(&odd);
    if (odd) {
      answer_oddly(opener, *need, file);
    } else if (need->want == FileRequestKind::kFile) {
      check(need->file == files.size());
      check(opener.opened(file.size()).ok());
      files.push_back(std::move(file));
    } else {
      const auto place = opener.reserve(file.size());
      check(place.ok());
      std::copy(file.begin(), file.end(), place->begin());
      check(opener.supply().ok());
    }
  }
  const auto made = opener.synthesized_file();
  const auto& derived = opener.derived();
  for (const auto& t : opener.header().tensors) {
    const size_t behind = files.size() + (made.empty() ? 0 : 1);
    check(t.file < behind + (derived.empty() ? 0 : 1));
    const uint64_t size = t.file < files.size() ? files[t.file].size()
                          : t.file < behind     ? made.size()
                                                : derived.back().begin + derived.back().bytes;
    check(t.offset + t.bytes <= size);
  }
  return 0;
}
