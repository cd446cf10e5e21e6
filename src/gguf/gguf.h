// The GGUF container (v2 and v3): metadata and the tensor directory, without any I/O.
// parse_header reads a prefix of the file. It succeeds or returns how many bytes it needs; the
// caller then fetches more and calls again. Nothing is copied: metadata values and names are views
// into that prefix, which the caller keeps alive. Every count and length is checked against a named
// cap and against the available bytes before anything is allocated.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::gguf {

using Bytes = std::span<const uint8_t>;

// Caps for untrusted headers.
inline constexpr uint64_t kMaxHeaderBytes = 256ull << 20;
inline constexpr uint64_t kMaxMetadataCount = 1u << 16;
inline constexpr uint64_t kMaxTensorCount = 1u << 17;
inline constexpr uint64_t kMaxNameBytes = 1u << 10;
inline constexpr uint64_t kMaxArrayDepth = 4;
inline constexpr uint64_t kMaxDimension = 1ull << 40;
inline constexpr uint64_t kMaxAlignment = 1u << 20;
inline constexpr uint32_t kMaxSplits = 1024;
inline constexpr uint64_t kFirstHeaderRead = 1u << 20;  // bytes of the first read

// ggml's tensor type ids. The size of every type is known, even of those without a kernel.
enum class TensorType : uint32_t {
#define SLUICE_ELEMENT_TYPE(NAME, name, id, bytes) k##NAME = id,
#define SLUICE_BLOCK_TYPE(NAME, name, id, values, bytes) k##NAME = id,
#define SLUICE_OTHER_TYPE(NAME, id, values, bytes) k##NAME = id,
#include "kernels/types.def"
};

struct TypeInfo {
  const char* name;      // "Q4_0"
  uint32_t block_size;   // weights per block
  uint32_t block_bytes;  // bytes per block
};
// Null for an id that ggml does not define.
[[nodiscard]] const TypeInfo* type_info(TensorType type);

enum class ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// Bytes of one stored scalar; 0 for strings and arrays, whose size varies.
[[nodiscard]] uint64_t value_type_bytes(ValueType type);

// A metadata value as a view of the header's bytes. For a scalar or string count is 1.
struct Value {
  ValueType type = ValueType::kU8;     // kArray for arrays
  ValueType element = ValueType::kU8;  // element type of an array, else == type
  uint64_t count = 0;                  // elements
  Bytes bytes;                         // the elements' bytes as stored

  [[nodiscard]] std::optional<uint64_t> as_u64() const;  // any integer or bool >= 0
  [[nodiscard]] std::optional<int64_t> as_i64() const;
  [[nodiscard]] std::optional<double> as_f64() const;  // any number
  [[nodiscard]] std::optional<bool> as_bool() const;
  [[nodiscard]] std::optional<std::string_view> as_string() const;
  // Element i of a numeric array, 0 when out of range. O(1).
  [[nodiscard]] double number_at(uint64_t i) const;
};

// Walks a string array in order; views point into the header.
class StringCursor {
 public:
  explicit StringCursor(const Value& array);
  [[nodiscard]] bool next(std::string_view* out);

 private:
  Bytes rest_;
  uint64_t left_ = 0;
};

struct KeyValue {
  std::string_view key;
  Value value;
};

struct Tensor {
  std::string_view name;
  TensorType type = TensorType::kF32;
  uint32_t n_dims = 0;
  std::array<uint64_t, 4> ne{1, 1, 1, 1};  // ne[0] is contiguous: columns; ne[1]: rows
  uint32_t file = 0;                       // index into the model's files (splits)
  uint64_t offset = 0;                     // from the start of that file, in bytes
  uint64_t bytes = 0;

  [[nodiscard]] uint64_t cols() const { return ne[0]; }
  [[nodiscard]] uint64_t rows() const { return ne[1] * ne[2] * ne[3]; }
  [[nodiscard]] uint64_t row_bytes() const { return rows() ? bytes / rows() : 0; }
};

// One parsed file, or several splits merged (metadata from the first).
struct Header {
  uint32_t version = 0;
  uint64_t alignment = 32;
  uint64_t data_offset = 0;  // of file 0
  std::vector<KeyValue> metadata;
  std::vector<Tensor> tensors;
  uint32_t n_files = 1;
  std::vector<uint32_t> by_name;      // indices of `tensors` sorted by name, for find_tensor
  std::shared_ptr<const void> owned;  // owns what the views point into, unless a file prefix does

  [[nodiscard]] const Value* find(std::string_view key) const;
  [[nodiscard]] const Tensor* find_tensor(std::string_view name) const;
  [[nodiscard]] std::optional<uint64_t> get_u64(std::string_view key) const;
  [[nodiscard]] std::optional<double> get_f64(std::string_view key) const;
  [[nodiscard]] std::optional<bool> get_bool(std::string_view key) const;
  [[nodiscard]] std::optional<std::string_view> get_string(std::string_view key) const;
};

struct ParseProgress {
  bool done = false;
  uint64_t need_bytes = 0;  // when not done: the least length of the next prefix
};

// Checks the type and dimensions of `t` and sets its bytes. Errors: kBadHeader, kUnsupportedType.
[[nodiscard]] Status set_tensor_bytes(Tensor* t);
// Rebuilds `by_name`. Errors: kBadHeader, naming a tensor that occurs twice.
[[nodiscard]] Status index_tensors(Header* header);

// Parses the header in `prefix`, the first bytes of a file of `file_size` bytes (0: unknown).
// Errors: kNotGguf, kUnsupportedVersion, kBadHeader, kTruncated (the file itself is too short).
[[nodiscard]] Result<ParseProgress> parse_header(Bytes prefix, uint64_t file_size, Header* out);

// The number of splits according to the first file ("split.count"); 1 when it is not split.
[[nodiscard]] Result<uint32_t> split_count(const Header& first);
// Adds the tensors of split `index` to `model` after checking its split.no and split.count.
[[nodiscard]] Status merge_split(Header* model, const Header& part, uint32_t index);

}  // namespace sluice::gguf
