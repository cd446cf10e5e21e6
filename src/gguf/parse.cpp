// The header parser. One pass over the prefix with a cursor that never moves past its end. A read
// beyond the end returns "need more", and the caller comes back with a longer prefix. Parsing then
// starts over. The request doubles each time, so all passes together cost at most twice the last.
// Allocations are bounded by the available bytes, never by a count in the file.
#include <algorithm>
#include <cstring>

#include "base/round_up.h"
#include "base/sort.h"
#include "gguf/gguf.h"
#include "gguf/printable.h"

namespace sluice::gguf {

namespace {

constexpr uint32_t kMagic = 0x46554747;              // "GGUF"
constexpr uint64_t kFixedHeaderBytes = 24;           // magic, version, two counts
constexpr uint64_t kMinKeyValueBytes = 8 + 4 + 1;    // key length, type, a one-byte value
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;  // name length, n_dims, type, offset
constexpr uint64_t kMaxTensorBytes = 1ull << 60;

// A cursor over the prefix. `missing` is the prefix length that the failed read needs.
struct Reader {
  Bytes data;
  uint64_t pos = 0;
  uint64_t missing = 0;

  bool has(uint64_t n) {
    if (n <= data.size() - pos) return true;
    missing = n > kMaxHeaderBytes ? kMaxHeaderBytes + 1 : pos + n;
    return false;
  }
  template <typename T>
  bool read(T* out) {
    if (!has(sizeof(T))) return false;
    std::memcpy(out, data.data() + pos, sizeof(T));
    pos += sizeof(T);
    return true;
  }
  bool read_view(uint64_t n, std::string_view* out) {
    if (!has(n)) return false;
    *out = {reinterpret_cast<const char*>(data.data()) + pos, static_cast<size_t>(n)};
    pos += n;
    return true;
  }
};

enum class Step { kOk, kMore, kFail };

class Parser {
 public:
  Parser(Bytes prefix, uint64_t file_size, Header* out) : file_size_(file_size), out_(out) {
    in_.data = prefix;
  }

  Result<ParseProgress> parse() {
    *out_ = Header{};
    const Step step = parse_all();
    if (step == Step::kFail) return failure_;
    if (step == Step::kMore) return ask_for_more();
    return ParseProgress{.done = true, .need_bytes = 0};
  }

 private:
  Step fail(Status status) {
    failure_ = std::move(status);
    return Step::kFail;
  }

  Result<ParseProgress> ask_for_more() const {
    const uint64_t have = in_.data.size();
    if (file_size_ != 0 && (in_.missing > file_size_ || have >= file_size_)) {
      return error(Code::kTruncated,
                   "the file ends inside its header: it has %llu bytes and the header needs more; "
                   "download it again",
                   static_cast<unsigned long long>(file_size_));
    }
    if (in_.missing > kMaxHeaderBytes) {
      return error(Code::kBadHeader, "the header is larger than %llu bytes",
                   static_cast<unsigned long long>(kMaxHeaderBytes));
    }
    uint64_t need = std::max({in_.missing, kFirstHeaderRead, 2 * have});
    need = std::min(need, kMaxHeaderBytes);
    if (file_size_ != 0) need = std::min(need, file_size_);
    return ParseProgress{.done = false, .need_bytes = need};
  }

  Step parse_all() {
    uint64_t n_tensors = 0;
    uint64_t n_metadata = 0;
    if (Step s = parse_preamble(&n_tensors, &n_metadata); s != Step::kOk) return s;
    out_->metadata.reserve(bounded(n_metadata, kMinKeyValueBytes));
    for (uint64_t i = 0; i < n_metadata; i++) {
      if (Step s = parse_key_value(); s != Step::kOk) return s;
    }
    if (Step s = check_metadata(); s != Step::kOk) return s;
    out_->tensors.reserve(bounded(n_tensors, kMinTensorBytes));
    for (uint64_t i = 0; i < n_tensors; i++) {
      if (Step s = parse_tensor(); s != Step::kOk) return s;
    }
    out_->data_offset = round_up(in_.pos, out_->alignment);
    if (Status s = index_tensors(out_); !s.ok()) return fail(std::move(s));
    return place_tensors();
  }

  // The bytes read since `start`.
  [[nodiscard]] Bytes since(uint64_t start) const {
    return in_.data.subspan(static_cast<size_t>(start), static_cast<size_t>(in_.pos - start));
  }

  // `count`, or less if the rest of the prefix cannot hold as many items of `item_bytes`.
  [[nodiscard]] size_t bounded(uint64_t count, uint64_t item_bytes) const {
    return static_cast<size_t>(std::min(count, (in_.data.size() - in_.pos) / item_bytes));
  }

  Step parse_preamble(uint64_t* n_tensors, uint64_t* n_metadata) {
    uint32_t magic = 0;
    uint32_t version = 0;
    if (file_size_ != 0 && file_size_ < 4) return fail(not_gguf());
    if (!in_.read(&magic)) return Step::kMore;
    if (magic != kMagic) return fail(not_gguf());
    if (!in_.read(&version)) return Step::kMore;
    if (version != 0 && (version & 0xffff) == 0) {
      return fail(error(Code::kUnsupportedVersion, "big-endian GGUF files are not supported"));
    }
    if (version != 2 && version != 3) {
      return fail(error(Code::kUnsupportedVersion,
                        "GGUF version %u is not supported, only 2 and 3 are", version));
    }
    out_->version = version;
    if (!in_.has(kFixedHeaderBytes - 8)) return Step::kMore;
    (void)in_.read(n_tensors);
    (void)in_.read(n_metadata);
    if (*n_tensors > kMaxTensorCount) return fail(too_many("tensors", *n_tensors, kMaxTensorCount));
    if (*n_metadata > kMaxMetadataCount) {
      return fail(too_many("metadata entries", *n_metadata, kMaxMetadataCount));
    }
    return Step::kOk;
  }

  static Status not_gguf() {
    return error(Code::kNotGguf,
                 "not a GGUF file: use the address of the file itself, not of a page about it");
  }

  static Status too_many(const char* what, uint64_t count, uint64_t cap) {
    return error(Code::kBadHeader, "the header has %llu %s; at most %llu are accepted",
                 static_cast<unsigned long long>(count), what,
                 static_cast<unsigned long long>(cap));
  }

  Step parse_name(const char* what, std::string_view* name) {
    uint64_t length = 0;
    if (!in_.read(&length)) return Step::kMore;
    if (length == 0 || length > kMaxNameBytes) {
      return fail(error(Code::kBadHeader, "a %s has %llu bytes; 1 to %llu are accepted", what,
                        static_cast<unsigned long long>(length),
                        static_cast<unsigned long long>(kMaxNameBytes)));
    }
    return in_.read_view(length, name) ? Step::kOk : Step::kMore;
  }

  Step parse_key_value() {
    KeyValue kv;
    uint32_t type = 0;
    if (Step s = parse_name("metadata key", &kv.key); s != Step::kOk) return s;
    if (!in_.read(&type)) return Step::kMore;
    key_ = kv.key;
    kv.value.type = static_cast<ValueType>(type);
    kv.value.element = kv.value.type;
    kv.value.count = 1;
    const uint64_t start = in_.pos;
    if (kv.value.type == ValueType::kArray) {
      if (Step s = parse_array(&kv.value); s != Step::kOk) return s;
    } else if (kv.value.type == ValueType::kString) {
      if (Step s = skip_elements(ValueType::kString, 1, 0); s != Step::kOk) return s;
      kv.value.bytes = since(start + 8);
    } else {
      if (Step s = skip_elements(kv.value.type, 1, 0); s != Step::kOk) return s;
      kv.value.bytes = since(start);
    }
    out_->metadata.push_back(kv);
    return Step::kOk;
  }

  Step parse_array(Value* value) {
    uint32_t element = 0;
    if (!in_.has(12)) return Step::kMore;
    (void)in_.read(&element);
    (void)in_.read(&value->count);
    value->element = static_cast<ValueType>(element);
    const uint64_t start = in_.pos;
    if (Step s = skip_elements(value->element, value->count, 1); s != Step::kOk) return s;
    value->bytes = since(start);
    return Step::kOk;
  }

  // Skips `count` stored values. Strings and arrays are walked one by one, so a hostile count stops
  // at the end of the prefix. `depth` is the number of arrays around the values.
  Step skip_elements(ValueType type, uint64_t count, uint64_t depth) {
    if (type == ValueType::kString) return skip_strings(count);
    if (type == ValueType::kArray) return skip_arrays(count, depth);
    const uint64_t size = value_type_bytes(type);
    if (size == 0) {
      return fail(error(Code::kBadHeader, "metadata \"%s\" has the unknown value type %u",
                        printable(key_).c_str(), static_cast<uint32_t>(type)));
    }
    if (count > kMaxHeaderBytes / size) return fail(too_long(count));
    if (!in_.has(count * size)) return Step::kMore;
    in_.pos += count * size;
    return Step::kOk;
  }

  Step skip_strings(uint64_t count) {
    if (count > kMaxHeaderBytes / 8) return fail(too_long(count));
    for (uint64_t i = 0; i < count; i++) {
      uint64_t length = 0;
      if (!in_.read(&length)) {
        in_.missing += (count - i - 1) * 8;  // each remaining string has at least its length
        return Step::kMore;
      }
      if (length > kMaxHeaderBytes) return fail(too_long(length));
      if (!in_.has(length)) return Step::kMore;
      in_.pos += length;
    }
    return Step::kOk;
  }

  Step skip_arrays(uint64_t count, uint64_t depth) {
    if (depth >= kMaxArrayDepth) {
      return fail(error(Code::kBadHeader, "metadata \"%s\" nests arrays deeper than %llu",
                        printable(key_).c_str(), static_cast<unsigned long long>(kMaxArrayDepth)));
    }
    if (count > kMaxHeaderBytes / 12) return fail(too_long(count));
    for (uint64_t i = 0; i < count; i++) {
      uint32_t element = 0;
      uint64_t inner = 0;
      if (!in_.has(12)) return Step::kMore;
      (void)in_.read(&element);
      (void)in_.read(&inner);
      if (Step s = skip_elements(static_cast<ValueType>(element), inner, depth + 1);
          s != Step::kOk) {
        return s;
      }
    }
    return Step::kOk;
  }

  Status too_long(uint64_t count) const {
    return error(Code::kBadHeader, "metadata \"%s\" has an impossible length (%llu)",
                 printable(key_).c_str(), static_cast<unsigned long long>(count));
  }

  Step check_metadata() {
    std::vector<std::string_view> keys;
    keys.reserve(out_->metadata.size());
    for (const KeyValue& kv : out_->metadata) keys.push_back(kv.key);
    heap_sort(keys);
    if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end()) {
      return fail(
          error(Code::kBadHeader, "metadata \"%s\" occurs twice", printable(*twice).c_str()));
    }
    if (const Value* alignment = out_->find("general.alignment")) {
      const uint64_t a = alignment->as_u64().value_or(0);
      if (a == 0 || a > kMaxAlignment || (a & (a - 1)) != 0) {
        return fail(error(Code::kBadHeader,
                          "general.alignment is not a power of two between 1 and %llu",
                          static_cast<unsigned long long>(kMaxAlignment)));
      }
      out_->alignment = a;
    }
    return Step::kOk;
  }

  Step parse_tensor() {
    Tensor t;
    if (Step s = parse_name("tensor name", &t.name); s != Step::kOk) return s;
    if (!in_.read(&t.n_dims)) return Step::kMore;
    if (t.n_dims > t.ne.size()) {
      return fail(error(Code::kBadHeader, "tensor \"%s\" has %u dimensions; at most 4 are accepted",
                        printable(t.name).c_str(), t.n_dims));
    }
    if (!in_.has(8 * t.n_dims + 12)) return Step::kMore;
    uint32_t type = 0;
    for (uint32_t d = 0; d < t.n_dims; d++) (void)in_.read(&t.ne[d]);
    (void)in_.read(&type);
    (void)in_.read(&t.offset);
    t.type = static_cast<TensorType>(type);
    if (Status s = set_tensor_bytes(&t); !s.ok()) return fail(std::move(s));
    out_->tensors.push_back(t);
    return Step::kOk;
  }

  // Makes offsets absolute. Each tensor must be aligned, lie inside the file and not overlap
  // another.
  Step place_tensors() {
    for (Tensor& t : out_->tensors) {
      if (t.offset % out_->alignment != 0) {
        return fail(error(Code::kBadHeader, "tensor \"%s\" is not aligned to %llu bytes",
                          printable(t.name).c_str(),
                          static_cast<unsigned long long>(out_->alignment)));
      }
      if (t.offset > kMaxTensorBytes) {
        return fail(error(Code::kBadHeader, "tensor \"%s\" has an impossible offset",
                          printable(t.name).c_str()));
      }
      t.offset += out_->data_offset;
      if (file_size_ != 0 && t.offset + t.bytes > file_size_) {
        return fail(
            error(Code::kTruncated,
                  "tensor \"%s\" ends at byte %llu, but the file has only %llu; download it again",
                  printable(t.name).c_str(), static_cast<unsigned long long>(t.offset + t.bytes),
                  static_cast<unsigned long long>(file_size_)));
      }
    }
    std::vector<uint32_t> order(out_->tensors.size());
    for (uint32_t i = 0; i < order.size(); i++) order[i] = i;
    const auto& tensors = out_->tensors;
    heap_sort(order, [&](uint32_t a, uint32_t b) { return tensors[a].offset < tensors[b].offset; });
    for (size_t i = 1; i < order.size(); i++) {
      const Tensor& a = tensors[order[i - 1]];
      const Tensor& b = tensors[order[i]];
      if (a.offset + a.bytes > b.offset) {
        return fail(error(Code::kBadHeader, "tensors \"%s\" and \"%s\" overlap",
                          printable(a.name).c_str(), printable(b.name).c_str()));
      }
    }
    return Step::kOk;
  }

  Reader in_;
  uint64_t file_size_;
  Header* out_;
  Status failure_;
  std::string_view key_;  // the current key, for messages
};

}  // namespace

Status set_tensor_bytes(Tensor* t) {
  const TypeInfo* info = type_info(t->type);
  if (info == nullptr) {
    return error(Code::kUnsupportedType, "tensor \"%s\" has the unknown type %u",
                 printable(t->name).c_str(), static_cast<uint32_t>(t->type));
  }
  uint64_t elements = 1;
  for (const uint64_t n : t->ne) {
    if (n == 0 || n > kMaxDimension || __builtin_mul_overflow(elements, n, &elements)) {
      return error(Code::kBadHeader, "tensor \"%s\" has impossible dimensions",
                   printable(t->name).c_str());
    }
  }
  if (t->ne[0] % info->block_size != 0) {
    return error(Code::kBadHeader,
                 "tensor \"%s\" has rows of %llu values, not a multiple of the %u in a %s block",
                 printable(t->name).c_str(), static_cast<unsigned long long>(t->ne[0]),
                 info->block_size, info->name);
  }
  if (__builtin_mul_overflow(elements / info->block_size, uint64_t{info->block_bytes}, &t->bytes) ||
      t->bytes > kMaxTensorBytes) {
    return error(Code::kBadHeader, "tensor \"%s\" has impossible dimensions",
                 printable(t->name).c_str());
  }
  return {};
}

Status index_tensors(Header* header) {
  const auto& tensors = header->tensors;
  auto& index = header->by_name;
  index.resize(tensors.size());
  for (uint32_t i = 0; i < index.size(); i++) index[i] = i;
  heap_sort(index, [&](uint32_t a, uint32_t b) { return tensors[a].name < tensors[b].name; });
  for (size_t i = 1; i < index.size(); i++) {
    if (tensors[index[i - 1]].name == tensors[index[i]].name) {
      return error(Code::kBadHeader, "tensor \"%s\" occurs twice",
                   printable(tensors[index[i]].name).c_str());
    }
  }
  return {};
}

Result<ParseProgress> parse_header(Bytes prefix, uint64_t file_size, Header* out) {
  if (file_size != 0 && prefix.size() > file_size) {
    prefix = prefix.first(static_cast<size_t>(file_size));
  }
  return Parser(prefix, file_size, out).parse();
}

}  // namespace sluice::gguf
