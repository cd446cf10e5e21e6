// Status and Result: how every module reports failure without exceptions. A Status is a stable code
// and one sentence for a person. Codes never change meaning. JavaScript and scripts match on their
// names (code_name), which are the `code` of a SluiceError. C programs match on their numbers,
// which src/api/sluice.h repeats.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

// The printf dialect that formats are checked against: C's, even where the platform's differs.
#if defined(__MINGW32__)
#define SLUICE_PRINTF gnu_printf
#else
#define SLUICE_PRINTF printf
#endif

namespace sluice {

enum class Code : uint8_t {
  kOk = 0,
  kInvalidArgument,          // a caller's value makes no sense; the message names it
  kNotGguf,                  // the file is not a model file at all
  kTruncated,                // the file ends before what its header promises
  kBadHeader,                // a count, length, shape or offset in the header is impossible
  kUnsupportedVersion,       // an unsupported GGUF version
  kUnsupportedArchitecture,  // a model family without an implementation, named
  kUnsupportedType,          // a tensor type without a kernel, named
  kMissingTensor,            // a tensor that the architecture needs is missing, named
  kBadShape,                 // a tensor's shape disagrees with the metadata, named
  kBadWeights,               // a tensor has a value that is not a number, named
  kBadTokenizer,             // vocabulary or merges that contradict themselves
  kUnsupportedTokenizer,     // tokenizer model or pre-tokenizer unknown, named
  kBudgetTooSmall,           // the message names the smallest budget that works
  kOutOfMemory,              // the platform refused an allocation inside the budget
  kPromptEmpty,
  kPromptTooLong,  // the message names both lengths
  kContextFull,
  kHttpStatus,      // the server answered with an error status, named
  kNetwork,         // host unreachable, connection lost, after all retries
  kNoRangeSupport,  // the server does not support range requests, and no cache is available
  kSourceChanged,   // the file on the server changed while it was being read
  kNotFound,        // no such file
  kIo,              // reading or writing local storage failed
  kCorrupt,         // a checksum did not match, and the data could not be repaired
  kCacheLocked,     // the entry of a store is in use by another process
  kAborted,
  kInternal,
  kGrammarSyntax,         // a grammar, pattern or schema that cannot be read, with the position
  kGrammarLeftRecursion,  // a rule that can begin with itself, named
  kGrammarTooLarge,       // more states than a grammar may have
  kSchemaUnsupported,     // a schema keyword that cannot be enforced, with its JSON pointer
  kChatTemplate,          // a chat template that cannot be read, raised or took too much
  kNotSupported,          // what the model lacks, such as a picture for a text model
  kNotInBuild,            // what this build omits and another build has, named
  kMediaMissing,          // a picture's tokens must be computed, without the picture
};

// The stable name of a code, such as "BUDGET_TOO_SMALL".
[[nodiscard]] const char* code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] bool ok() const { return code_ == Code::kOk; }
  [[nodiscard]] Code code() const { return code_; }
  [[nodiscard]] const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// Makes an error from a printf-style format. Replaces control characters in the message by '?'.
[[nodiscard]] Status error(Code code, const char* format, ...)
    __attribute__((format(SLUICE_PRINTF, 2, 3)));

// kNotInBuild for a feature that this build omits: "early exit".
[[nodiscard]] Status not_in_build(const char* feature);

// A value, or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit by design

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] T& value() { return *value_; }
  [[nodiscard]] const T& value() const { return *value_; }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

#define SLUICE_RETURN_IF_ERROR(expr)                        \
  do {                                                      \
    if (::sluice::Status status_ = (expr); !status_.ok()) { \
      return status_;                                       \
    }                                                       \
  } while (0)

}  // namespace sluice
