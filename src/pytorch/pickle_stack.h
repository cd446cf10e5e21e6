// The values of a pickle's stack machine: the bytes that are left, the stack and the memo. All
// values live in one list; the stack and the memo hold indices into it. The first error is kept.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "pytorch/pickle.h"

namespace sluice::pytorch {

enum class Item : uint8_t {
  kNone,
  kMark,
  kNumber,
  kText,
  kTuple,
  kList,
  kDict,     // items: key, value, key, value...
  kOrdered,  // collections.OrderedDict, the class
  kRebuildTensor,
  kRebuildParameter,
  kStorageType,  // number: of kStorages
  kStorage,      // text: its key; items: its type, its number of values
  kTensor,       // number: of tensors_
};

struct Value {
  Item kind = Item::kNone;
  int64_t number = 0;
  std::string_view text;
  std::vector<uint32_t> items;
};

class PickleStack {
 public:
  PickleStack(gguf::Bytes in, const char* file) : in_(in), file_(file) {}

  Status bad(const std::string& what) const {
    return error(Code::kBadHeader, "%s: its data.pkl %s", file_, what.c_str());
  }
  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  void fail(const std::string& what) { fail(bad(what)); }

  // --- bytes

  uint64_t number(size_t bytes) {
    uint64_t value = 0;
    if (in_.size() - at_ < bytes) return truncated();
    std::memcpy(&value, in_.data() + at_, bytes);
    at_ += bytes;
    return value;
  }
  std::string_view text(uint64_t bytes) {
    if (in_.size() - at_ < bytes) return truncated(), std::string_view();
    const auto* from = reinterpret_cast<const char*>(in_.data()) + at_;
    at_ += static_cast<size_t>(bytes);
    return {from, static_cast<size_t>(bytes)};
  }
  std::string_view line() {
    const auto* from = reinterpret_cast<const char*>(in_.data()) + at_;
    const void* end = std::memchr(from, '\n', in_.size() - at_);
    if (end == nullptr) return truncated(), std::string_view();
    const auto n = static_cast<size_t>(static_cast<const char*>(end) - from);
    at_ += n + 1;
    return {from, n};
  }
  uint64_t truncated() {
    fail(error(Code::kTruncated, "%s: its data.pkl ends too early", file_));
    at_ = in_.size();
    return 0;
  }

  // --- values

  Value& push(Item kind, int64_t n = 0) {
    if (values_.size() >= kMaxPickleValues) fail("has more values than a model's tensors take");
    stack_.push_back(static_cast<uint32_t>(values_.size()));
    Value& value = values_.emplace_back();
    value.kind = kind;
    value.number = n;
    return value;
  }
  Value& top() { return values_[stack_.back()]; }
  [[nodiscard]] bool has(size_t n) {
    if (stack_.size() >= n) return true;
    fail("uses more values than its stack has");
    return false;
  }
  uint32_t pop() {
    if (!has(1)) return 0;
    const uint32_t index = stack_.back();
    stack_.pop_back();
    return index;
  }
  // Pops the values above the mark, and the mark.
  std::vector<uint32_t> pop_to_mark() {
    size_t from = stack_.size();
    while (from > 0 && values_[stack_[from - 1]].kind != Item::kMark) --from;
    if (from == 0) return fail("has no mark on its stack"), std::vector<uint32_t>();
    std::vector<uint32_t> items(stack_.begin() + static_cast<ptrdiff_t>(from), stack_.end());
    stack_.resize(from - 1);
    return items;
  }
  void push_tuple(std::vector<uint32_t> items) {
    if (status_.ok()) push(Item::kTuple).items = std::move(items);
  }
  void push_tuple_of(size_t n) {
    if (!has(n)) return;
    std::vector<uint32_t> items(stack_.end() - static_cast<ptrdiff_t>(n), stack_.end());
    stack_.resize(stack_.size() - n);
    push_tuple(std::move(items));
  }
  void remember(uint64_t place) {
    if (place >= kMaxPickleValues) return fail("has more values than a model's tensors take");
    if (!has(1)) return;
    if (memo_.size() <= place) memo_.resize(static_cast<size_t>(place) + 1, kNowhere);
    memo_[static_cast<size_t>(place)] = stack_.back();
  }
  void recall(uint64_t place) {
    if (place >= memo_.size() || memo_[static_cast<size_t>(place)] == kNowhere) {
      return fail("reads a memo entry that does not exist");
    }
    stack_.push_back(memo_[static_cast<size_t>(place)]);
  }
  void add_items(std::vector<uint32_t> items, Item kind) {
    if (!status_.ok() || !has(1)) return;
    Value& to = top();
    if (to.kind != kind || (kind == Item::kDict && items.size() % 2 != 0)) {
      return fail("adds items to a value that is not a dictionary or list");
    }
    held_ += items.size();
    if (held_ > kMaxPickleValues) return fail("has more values than a model's tensors take");
    to.items.insert(to.items.end(), items.begin(), items.end());
  }

 protected:
  static constexpr uint32_t kNowhere = UINT32_MAX;
  gguf::Bytes in_;
  const char* file_;
  size_t at_ = 0;
  Status status_;
  std::vector<Value> values_;
  std::vector<uint32_t> stack_, memo_;
  size_t held_ = 0;  // items of dictionaries and lists
};

}  // namespace sluice::pytorch
