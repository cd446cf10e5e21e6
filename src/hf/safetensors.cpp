// Streams the safetensors directory, and checks each entry at its end.
#include "hf/safetensors.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/sort.h"
#include "gguf/printable.h"
#include "hf/json.h"

namespace sluice::hf {

namespace {

using gguf::Bytes;
using gguf::ParseProgress;
using gguf::printable;

// The size of a value of a dtype; 0 when unknown. Unknown types are an error only if used.
uint64_t dtype_bytes(std::string_view dtype) {
  if (dtype == "F64" || dtype == "I64" || dtype == "U64") return 8;
  if (dtype == "F32" || dtype == "I32" || dtype == "U32") return 4;
  if (dtype == "F16" || dtype == "BF16" || dtype == "I16" || dtype == "U16") return 2;
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL" || dtype == "F8_E4M3" ||
      dtype == "F8_E5M2") {
    return 1;
  }
  return 0;
}

class EntryReader final : public JsonVisitor {
 public:
  explicit EntryReader(std::vector<SafetensorsEntry>* entries) : entries_(entries) {}

  bool scalar(const JsonPath& path, const JsonScalar& value) override {
    if (path.empty() || path[0] == "__metadata__") return !path.empty();
    if (path.size() < 2) return fail(path[0], "is not an object");
    begin_entry(path[0]);
    const bool natural = value.kind == JsonScalar::Kind::kInteger && value.integer >= 0;
    if (path[1] == "dtype" && path.size() == 2 && value.kind == JsonScalar::Kind::kString) {
      if (value.text.size() > 32) return fail(path[0], "has an invalid dtype");
      entry_.dtype = value.text;
    } else if (path[1] == "shape" && path.size() == 3 && natural) {
      if (entry_.shape.size() >= kMaxDimensions) return fail(path[0], "has too many dimensions");
      entry_.shape.push_back(static_cast<uint64_t>(value.integer));
    } else if (path[1] == "data_offsets" && path.size() == 3 && natural && n_offsets_ < 2) {
      (n_offsets_++ == 0 ? entry_.begin : entry_.end) = static_cast<uint64_t>(value.integer);
    } else {
      return fail(path[0], "has an invalid directory entry");
    }
    return true;
  }

  bool end(const JsonPath& path) override {
    if (path.size() != 1 || path[0] == "__metadata__") return true;
    begin_entry(path[0]);
    started_ = false;
    if (n_offsets_ != 2 || entry_.dtype.empty() || entry_.end < entry_.begin) {
      return fail(path[0], "has an incomplete directory entry");
    }
    if (entries_->size() >= gguf::kMaxTensorCount) return fail(path[0], "is one too many");
    if (!size_fits()) return fail(path[0], "has a shape that does not fit its bytes");
    entries_->push_back(std::move(entry_));
    return true;
  }

  std::string problem;

 private:
  bool fail(std::string_view name, const char* what) {
    problem = "the tensor \"" + printable(name) + "\" " + what;
    return false;
  }

  void begin_entry(const std::string& name) {
    if (started_) return;
    started_ = true;
    entry_ = {};
    entry_.name = name;
    n_offsets_ = 0;
  }

  [[nodiscard]] bool size_fits() const {
    uint64_t bytes = dtype_bytes(entry_.dtype);
    if (bytes == 0) return true;
    for (const uint64_t n : entry_.shape) {
      if (__builtin_mul_overflow(bytes, n, &bytes)) return false;
    }
    return bytes == entry_.end - entry_.begin;
  }

  std::vector<SafetensorsEntry>* entries_;
  SafetensorsEntry entry_;
  int n_offsets_ = 0;
  bool started_ = false;
};

// Makes offsets absolute. Checks that tensors lie inside the file and do not overlap.
Status place(SafetensorsFile* file, uint64_t file_size, const char* name) {
  std::vector<const SafetensorsEntry*> order;
  for (SafetensorsEntry& e : file->entries) {
    if (e.name.empty() || e.name.size() > gguf::kMaxNameBytes) {
      return error(Code::kBadHeader, "%s: a tensor's name is empty or too long", name);
    }
    if (file_size != 0 && e.end > file_size - file->data_offset) {
      return error(Code::kTruncated, "%s: the tensor \"%s\" ends after the end of the file", name,
                   printable(e.name).c_str());
    }
    if (e.end > 1ull << 60) {
      return error(Code::kBadHeader, "%s: the tensor \"%s\" has an impossible offset", name,
                   printable(e.name).c_str());
    }
    e.begin += file->data_offset;
    e.end += file->data_offset;
    order.push_back(&e);
  }
  heap_sort(order, [](const auto* a, const auto* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  for (size_t i = 1; i < order.size(); i++) {
    if (order[i - 1]->end > order[i]->begin) {
      return error(Code::kBadHeader, "%s: the tensors \"%s\" and \"%s\" overlap", name,
                   printable(order[i - 1]->name).c_str(), printable(order[i]->name).c_str());
    }
  }
  return {};
}

// Characters that have no special meaning in any path or URL.
bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

Result<ParseProgress> parse_safetensors(Bytes prefix, uint64_t file_size, const char* file,
                                        SafetensorsFile* out) {
  *out = {};
  if (file_size != 0 && file_size < 8) {
    return error(Code::kTruncated, "%s is too short for a safetensors file", file);
  }
  if (prefix.size() < 8) return ParseProgress{.done = false, .need_bytes = 8};
  uint64_t length = 0;
  std::memcpy(&length, prefix.data(), 8);
  if (length < 2 || length > kMaxSafetensorsHeader) {
    return error(Code::kBadHeader, "%s is not a safetensors file: its header would have %llu bytes",
                 file, static_cast<unsigned long long>(length));
  }
  if (file_size != 0 && length > file_size - 8) {
    return error(Code::kTruncated, "%s ends inside its header", file);
  }
  if (prefix.size() - 8 < length) return ParseProgress{.done = false, .need_bytes = 8 + length};
  out->data_offset = 8 + length;
  EntryReader reader(&out->entries);
  const std::string_view text(reinterpret_cast<const char*>(prefix.data()) + 8,
                              static_cast<size_t>(length));
  const Result<bool> walked = walk_json(text, file, &reader);
  if (!walked.ok()) return walked.status();
  if (!*walked) {
    return error(
        Code::kBadHeader, "%s: %s", file,
        reader.problem.empty() ? "its header is not a JSON object" : reader.problem.c_str());
  }
  SLUICE_RETURN_IF_ERROR(place(out, file_size, file));
  return ParseProgress{.done = true, .need_bytes = 0};
}

Result<std::vector<std::string>> safetensors_shards(std::string_view index_json) {
  class Shards final : public JsonVisitor {
   public:
    bool scalar(const JsonPath& path, const JsonScalar& value) override {
      if (path.size() != 2 || path[0] != "weight_map") return true;
      const std::string name(value.text);
      const bool plain = value.kind == JsonScalar::Kind::kString && name.size() < 256 &&
                         name.ends_with(".safetensors") && name[0] != '.' &&
                         std::all_of(name.begin(), name.end(), is_plain);
      if (!plain) {
        problem = "it names a file that is not in its directory: \"" + printable(name) + "\"";
        return false;
      }
      names.insert(name);
      if (names.size() > gguf::kMaxSplits) problem = "it names too many files";
      return names.size() <= gguf::kMaxSplits;
    }
    std::set<std::string> names;  // sorted, which is the order of shards
    std::string problem;
  } shards;
  const Result<bool> walked = walk_json(index_json, "model.safetensors.index.json", &shards);
  if (!walked.ok()) return walked.status();
  if (!*walked || shards.names.empty()) {
    return error(Code::kBadHeader, "model.safetensors.index.json: %s",
                 *walked ? "it names no files" : shards.problem.c_str());
  }
  return std::vector<std::string>(shards.names.begin(), shards.names.end());
}

}  // namespace sluice::hf
