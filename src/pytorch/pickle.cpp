// The instructions of the stack machine.
#include "pytorch/pickle.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "gguf/printable.h"
#include "hf/safetensors.h"
#include "pytorch/pickle_stack.h"

namespace sluice::pytorch {
namespace {

using gguf::printable;
using hf::kMaxDimensions;

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

class Machine : private PickleStack {
 public:
  using PickleStack::PickleStack;

  Result<std::vector<PickledTensor>> run() {
    while (status_.ok() && !stopped_) step();
    if (!status_.ok()) return status_;
    if (stack_.size() != 1 || top().kind != Item::kDict)
      return bad("is not a dictionary of tensors");
    return tensors_of(top());
  }

 private:
  void step();
  [[nodiscard]] bool push_constant(uint8_t op);
  [[nodiscard]] bool change_items(uint8_t op);
  void push_global();
  void push_storage();
  void reduce();
  void rebuild_tensor(const Value& arguments);
  [[nodiscard]] bool fill_shape(const Value& sizes, const Value& strides, PickledTensor* tensor);
  [[nodiscard]] Result<std::vector<PickledTensor>> tensors_of(const Value& dict);

  bool stopped_ = false;
  std::vector<PickledTensor> tensors_;
};

// Instructions that push a value which the pickle contains.
bool Machine::push_constant(uint8_t op) {
  switch (op) {
    case '}':
      push(Item::kDict);
      return true;
    case ']':
      push(Item::kList);
      return true;
    case ')':
      push(Item::kTuple);
      return true;
    case '(':
      push(Item::kMark);
      return true;
    case 'N':
      push(Item::kNone);
      return true;
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
      push(Item::kNumber, op == 0x88);
      return true;
    case 'K':
      push(Item::kNumber, static_cast<int64_t>(number(1)));
      return true;
    case 'M':
      push(Item::kNumber, static_cast<int64_t>(number(2)));
      return true;
    case 'J':
      push(Item::kNumber, static_cast<int32_t>(number(4)));
      return true;
    case 0x8a: {  // LONG1, of 8 bytes at most: little-endian, signed
      const uint64_t n = number(1);
      if (n > 8) return fail("has a number that is too large"), true;
      const uint64_t bits = number(static_cast<size_t>(n));
      const int unused = static_cast<int>(64 - 8 * n);
      push(Item::kNumber, n == 0 ? 0 : static_cast<int64_t>(bits << unused) >> unused);
      return true;
    }
    case 'G':  // BINFLOAT: unused
      (void)number(8);
      push(Item::kNone);
      return true;
    case 'X': {  // BINUNICODE
      const uint64_t n = number(4);
      const std::string_view read = text(n);
      push(Item::kText).text = read;
      return true;
    }
    case 'U': {  // SHORT_BINSTRING
      const uint64_t n = number(1);
      const std::string_view read = text(n);
      push(Item::kText).text = read;
      return true;
    }
    default:
      return false;
  }
}

// Instructions that make tuples, and that fill dictionaries and lists.
bool Machine::change_items(uint8_t op) {
  switch (op) {
    case 't':
      return push_tuple(pop_to_mark()), true;
    case 0x85:  // TUPLE1
    case 0x86:  // TUPLE2
    case 0x87:  // TUPLE3
      return push_tuple_of(op - 0x84u), true;
    case 's':  // SETITEM
      if (has(2)) {
        const uint32_t value = pop(), key = pop();
        add_items({key, value}, Item::kDict);
      }
      return true;
    case 'u':
      return add_items(pop_to_mark(), Item::kDict), true;
    case 'a':
      return add_items({pop()}, Item::kList), true;
    case 'e':
      return add_items(pop_to_mark(), Item::kList), true;
    case 'b':  // BUILD: attributes of a dictionary
      (void)pop();
      if (has(1) && top().kind != Item::kDict)
        fail("sets attributes of a value that is not a dictionary");
      return true;
    default:
      return false;
  }
}

void Machine::step() {
  const auto op = static_cast<uint8_t>(number(1));
  if (!status_.ok() || push_constant(op) || change_items(op)) return;
  switch (op) {
    case 0x80:  // PROTO
      if (number(1) > 5) fail("has an unsupported protocol");
      return;
    case '.':
      stopped_ = true;
      return;
    case 'q':
      return remember(number(1));
    case 'r':
      return remember(number(4));
    case 'h':
      return recall(number(1));
    case 'j':
      return recall(number(4));
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

}  // namespace sluice::pytorch
