// The stack machine. All values live in one list; the stack and the memo hold indices into it.
#include "hf/pickle.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string_view>

#include "gguf/printable.h"
#include "hf/safetensors.h"

namespace sluice::hf {
namespace {

using gguf::printable;

constexpr uint64_t kMaxBytes = 1ull << 60;

struct Storage {
  std::string_view type, dtype;
  uint64_t bytes;
};
constexpr Storage kStorages[] = {
    {"FloatStorage", "F32", 4},  {"HalfStorage", "F16", 2}, {"BFloat16Storage", "BF16", 2},
    {"DoubleStorage", "F64", 8}, {"LongStorage", "I64", 8}, {"IntStorage", "I32", 4},
    {"ShortStorage", "I16", 2},  {"CharStorage", "I8", 1},  {"ByteStorage", "U8", 1},
    {"BoolStorage", "BOOL", 1},
};

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

class Machine {
 public:
  Machine(gguf::Bytes in, const char* file) : in_(in), file_(file) {}

  Result<std::vector<PickledTensor>> run() {
    while (status_.ok() && !stopped_) step();
    if (!status_.ok()) return status_;
    if (stack_.size() != 1 || top().kind != Item::kDict)
      return bad("is not a dictionary of tensors");
    return tensors_of(top());
  }

 private:
  // --- errors: the first one is kept

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

  // --- instructions

  void step();
  void push_global();
  void push_storage();
  void reduce();
  void rebuild_tensor(const Value& arguments);
  [[nodiscard]] bool fill_shape(const Value& sizes, const Value& strides, PickledTensor* tensor);
  [[nodiscard]] Result<std::vector<PickledTensor>> tensors_of(const Value& dict);

  static constexpr uint32_t kNowhere = UINT32_MAX;
  gguf::Bytes in_;
  const char* file_;
  size_t at_ = 0;
  Status status_;
  bool stopped_ = false;
  std::vector<Value> values_;
  std::vector<uint32_t> stack_, memo_;
  std::vector<PickledTensor> tensors_;
  size_t held_ = 0;  // items of dictionaries and lists
};

void Machine::step() {
  const auto op = static_cast<uint8_t>(number(1));
  if (!status_.ok()) return;
  switch (op) {
    case 0x80:  // PROTO
      if (number(1) > 5) fail("has an unsupported protocol");
      return;
    case '.':
      stopped_ = true;
      return;
    case '}':
      push(Item::kDict);
      return;
    case ']':
      push(Item::kList);
      return;
    case ')':
      push(Item::kTuple);
      return;
    case '(':
      push(Item::kMark);
      return;
    case 'N':
      push(Item::kNone);
      return;
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
      push(Item::kNumber, op == 0x88);
      return;
    case 'K':
      push(Item::kNumber, static_cast<int64_t>(number(1)));
      return;
    case 'M':
      push(Item::kNumber, static_cast<int64_t>(number(2)));
      return;
    case 'J':
      push(Item::kNumber, static_cast<int32_t>(number(4)));
      return;
    case 0x8a: {  // LONG1, of 8 bytes at most: little-endian, signed
      const uint64_t n = number(1);
      if (n > 8) return fail("has a number that is too large");
      const uint64_t bits = number(static_cast<size_t>(n));
      const int unused = static_cast<int>(64 - 8 * n);
      push(Item::kNumber, n == 0 ? 0 : static_cast<int64_t>(bits << unused) >> unused);
      return;
    }
    case 'G':  // BINFLOAT: unused
      (void)number(8);
      push(Item::kNone);
      return;
    case 'X': {  // BINUNICODE
      const uint64_t n = number(4);
      const std::string_view read = text(n);
      push(Item::kText).text = read;
      return;
    }
    case 'U': {  // SHORT_BINSTRING
      const uint64_t n = number(1);
      const std::string_view read = text(n);
      push(Item::kText).text = read;
      return;
    }
    case 'q':
      return remember(number(1));
    case 'r':
      return remember(number(4));
    case 'h':
      return recall(number(1));
    case 'j':
      return recall(number(4));
    case 't':
      return push_tuple(pop_to_mark());
    case 0x85:  // TUPLE1
    case 0x86:  // TUPLE2
    case 0x87:  // TUPLE3
      return push_tuple_of(op - 0x84u);
    case 's':  // SETITEM
      if (has(2)) {
        const uint32_t value = pop(), key = pop();
        add_items({key, value}, Item::kDict);
      }
      return;
    case 'u':
      return add_items(pop_to_mark(), Item::kDict);
    case 'a':
      return add_items({pop()}, Item::kList);
    case 'e':
      return add_items(pop_to_mark(), Item::kList);
    case 'b':  // BUILD: attributes of a dictionary
      (void)pop();
      if (has(1) && top().kind != Item::kDict)
        fail("sets attributes of a value that is not a dictionary");
      return;
    case 'c':
      return push_global();
    case 'Q':
      return push_storage();
    case 'R':
      return reduce();
    default: {
      char name[64];
      std::snprintf(name, sizeof name, "has the instruction 0x%02x, which is not supported", op);
      return fail(name);
    }
  }
}

void Machine::push_global() {
  const std::string_view module = line(), name = line();
  if (!status_.ok()) return;
  if (module == "collections" && name == "OrderedDict") {
    push(Item::kOrdered);
    return;
  }
  if (module == "torch._utils" && name == "_rebuild_tensor_v2") {
    push(Item::kRebuildTensor);
    return;
  }
  if (module == "torch._utils" && name == "_rebuild_parameter") {
    push(Item::kRebuildParameter);
    return;
  }
  if (module == "torch") {
    const auto found = std::find_if(std::begin(kStorages), std::end(kStorages),
                                    [name](const Storage& s) { return s.type == name; });
    if (found != std::end(kStorages)) {
      push(Item::kStorageType, found - std::begin(kStorages));
      return;
    }
  }
  fail(error(Code::kUnsupportedType, "%s: its data.pkl uses %s.%s, which is not supported", file_,
             printable(module, 64).c_str(), printable(name, 64).c_str()));
}

// ("storage", type, key, location, values)
void Machine::push_storage() {
  const uint32_t index = pop();
  if (!status_.ok()) return;
  const std::vector<uint32_t> items = values_[index].items;
  const auto kind = [&](size_t i) { return values_[items[i]].kind; };
  if (values_[index].kind != Item::kTuple || items.size() != 5 || kind(0) != Item::kText ||
      values_[items[0]].text != "storage" || kind(1) != Item::kStorageType ||
      kind(2) != Item::kText || kind(4) != Item::kNumber) {
    return fail("has an invalid storage");
  }
  const std::string_view key = values_[items[2]].text;
  Value& storage = push(Item::kStorage);
  storage.text = key;
  storage.items = {items[1], items[4]};
}

void Machine::reduce() {
  if (!has(2)) return;
  const uint32_t arguments = pop(), function = pop();
  if (values_[arguments].kind != Item::kTuple) return fail("calls without arguments");
  switch (values_[function].kind) {
    case Item::kOrdered:
      if (!values_[arguments].items.empty()) return fail("has an invalid dictionary");
      push(Item::kDict);
      return;
    case Item::kRebuildTensor:
      return rebuild_tensor(Value(values_[arguments]));
    case Item::kRebuildParameter: {  // (tensor, requires_grad, hooks)
      const std::vector<uint32_t>& items = values_[arguments].items;
      if (items.empty() || values_[items[0]].kind != Item::kTensor) {
        return fail("has an invalid parameter");
      }
      stack_.push_back(items[0]);
      return;
    }
    default:
      return fail("calls a value that is not a function");
  }
}

// Reads the sizes, and checks that the strides are those of a contiguous tensor.
bool Machine::fill_shape(const Value& sizes, const Value& strides, PickledTensor* tensor) {
  const size_t n = sizes.items.size();
  if (sizes.kind != Item::kTuple || strides.kind != Item::kTuple || n != strides.items.size() ||
      n > kMaxDimensions) {
    return false;
  }
  uint64_t step = 1;
  tensor->shape.resize(n);
  for (size_t i = n; i-- > 0;) {
    const Value &size = values_[sizes.items[i]], &stride = values_[strides.items[i]];
    if (size.kind != Item::kNumber || stride.kind != Item::kNumber || size.number < 0) return false;
    tensor->shape[i] = static_cast<uint64_t>(size.number);
    if (size.number != 1 && stride.number != static_cast<int64_t>(step)) return false;
    if (__builtin_mul_overflow(step, tensor->shape[i], &step) || step > kMaxBytes) return false;
  }
  tensor->end = step;
  return true;
}

// (storage, offset, sizes, strides, requires_grad, hooks...)
void Machine::rebuild_tensor(const Value& arguments) {
  const std::vector<uint32_t>& items = arguments.items;
  if (items.size() < 4 || values_[items[0]].kind != Item::kStorage ||
      values_[items[1]].kind != Item::kNumber || values_[items[1]].number < 0) {
    return fail("has an invalid tensor");
  }
  if (tensors_.size() >= gguf::kMaxTensorCount) return fail("has too many tensors");
  const Value& storage = values_[items[0]];
  const Storage& type = kStorages[values_[storage.items[0]].number];
  const auto first = static_cast<uint64_t>(values_[items[1]].number);
  const int64_t in_storage = values_[storage.items[1]].number;
  PickledTensor tensor;
  if (!fill_shape(values_[items[2]], values_[items[3]], &tensor)) {
    return fail(error(Code::kBadShape,
                      "%s: a tensor is not contiguous in the file, or its shape is invalid",
                      file_));
  }
  if (first > kMaxBytes || in_storage < 0 ||
      first + tensor.end > static_cast<uint64_t>(in_storage)) {
    return fail(error(Code::kBadShape, "%s: a tensor exceeds its storage", file_));
  }
  tensor.dtype = type.dtype;
  tensor.storage = storage.text;
  tensor.end = (first + tensor.end) * type.bytes;
  tensor.begin = first * type.bytes;
  push(Item::kTensor, static_cast<int64_t>(tensors_.size()));
  tensors_.push_back(std::move(tensor));
}

// Whether a name needs no escapes in any format.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= gguf::kMaxNameBytes &&
         std::all_of(name.begin(), name.end(),
                     [](char c) { return c > ' ' && c < 0x7f && c != '"' && c != '\\'; });
}

Result<std::vector<PickledTensor>> Machine::tensors_of(const Value& dict) {
  std::vector<PickledTensor> out;
  std::set<std::string_view> names;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const Value &key = values_[dict.items[i]], &value = values_[dict.items[i + 1]];
    if (value.kind != Item::kTensor) continue;
    if (key.kind != Item::kText || !is_plain_name(key.text)) {
      return bad("has a tensor with an invalid name: \"" + printable(key.text, 64) + "\"");
    }
    if (!names.insert(key.text).second) {
      return bad("has two tensors named \"" + printable(key.text) + "\"");
    }
    out.push_back(tensors_[static_cast<size_t>(value.number)]);
    out.back().name = key.text;
  }
  if (out.empty()) return bad("is a dictionary without tensors");
  return out;
}

}  // namespace

Result<std::vector<PickledTensor>> parse_pickle(gguf::Bytes pickle, const char* file) {
  if (pickle.size() > kMaxPickleBytes) {
    return error(Code::kBadHeader, "%s: its data.pkl has %llu bytes, which is too many", file,
                 static_cast<unsigned long long>(pickle.size()));
  }
  return Machine(pickle, file).run();
}

}  // namespace sluice::hf
