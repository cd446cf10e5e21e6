// Creates and compares values as Python does.
#include "jinja/values.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace sluice::jinja {
namespace {

constexpr uint64_t kMaxSteps = 2'000'000;
constexpr uint64_t kMaxWork = 1u << 27;
constexpr int kMaxDepth = 700;

const String kEmpty;

// As in Python, 1, 1.0 and True are the same key.
bool same_number(const Value& a, const Value& b) {
  if (a.is_whole() && b.is_whole()) return a.whole() == b.whole();
  return a.real() == b.real();
}

}  // namespace

Values::Deeper::Deeper(Values* values) : values_(values) {
  if (++values->depth_ > kMaxDepth) values->fail("nesting is too deep");
  if (++values->steps_ > kMaxSteps / values->share_) values->fail("it exceeds the limit of steps");
}

Value Values::fail(const char* format, ...) {
  if (!ok()) return {};
  va_list args;
  va_start(args, format);
  char text[400];
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  status_ = error(Code::kChatTemplate, "the chat template failed: %s (line %u)", text, line_);
  return {};
}

Value Values::fail_undefined(const Value& value) {
  if (value.string == nullptr) return fail("a value is undefined");
  return fail("%s", std::string(value.string->text.view()).c_str());
}

bool Values::spend(uint64_t amount) {
  work_ += amount;
  if (work_ > kMaxWork / share_) fail("it exceeds the limit of work");
  return ok();
}

Value Values::text(Text text, bool markup) {
  if (text.size() > kMaxText) return fail("its output is too long");
  spend(text.size());
  auto* string = make<String>();
  string->text = std::move(text);
  string->markup = markup;
  return Value(string);
}

Value Values::sequence(std::vector<Value> items, Flavor flavor) {
  spend(16 * items.size());
  auto* out = make<Sequence>();
  out->items = std::move(items);
  out->flavor = flavor;
  return Value(out);
}

Value Values::given(std::string_view bytes, bool content) {
  Span span;
  span.source = static_cast<uint32_t>(sources_.size() + 1);
  span.to = static_cast<uint32_t>(bytes.size());
  span.content = content;
  Text shown;
  shown.append(bytes, span);
  const Value out = text(std::move(shown));
  sources_.push_back(out.string != nullptr ? out.string : &kEmpty);
  return out;
}

Value Values::undefined(std::string_view why) {
  Value value = text(why);
  value.kind = Kind::kUndefined;
  return value;
}

void Values::put(Dict* dict, Value key, Value value) {
  spend(kThing);
  if (key.is(Kind::kString)) {
    const auto [at, fresh] = dict->by_name.emplace(key.string->text.view(), dict->entries.size());
    if (fresh) {
      dict->entries.emplace_back(key, value);
    } else {
      dict->entries[at->second].second = value;
    }
    return;
  }
  const bool hashable = key.is_number() || key.is(Kind::kNumeral) || key.is(Kind::kNone) ||
                        (key.is(Kind::kSequence) && key.sequence->flavor == Flavor::kTuple);
  if (!hashable) {
    fail("unhashable type: '%s'", type_name(key));
    return;
  }
  if (const Value* found = find(*dict, key)) {
    *const_cast<Value*>(found) = value;
    return;
  }
  dict->plain_keys = false;
  dict->entries.emplace_back(key, value);
}

const Value* Values::find(const Dict& dict, const Value& key) {
  if (key.is(Kind::kString)) {
    spend(1 + key.string->text.size() / 8);
    const auto found = dict.by_name.find(key.string->text.view());
    return found == dict.by_name.end() ? nullptr : &dict.entries[found->second].second;
  }
  if (dict.plain_keys) return nullptr;
  for (const auto& [known, value] : dict.entries) {
    if (!known.is(Kind::kString) && equal(known, key)) return &value;
  }
  return nullptr;
}

bool Values::truth(const Value& value) const {
  switch (value.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.boolean;
    case Kind::kInt:
      return value.integer != 0;
    case Kind::kFloat:
      return value.number != 0;
    case Kind::kNumeral:
      return true;
    case Kind::kString:
    case Kind::kBytes:
      return value.string->text.size() > 0;
    case Kind::kSequence:
      return value.sequence->flavor == Flavor::kGenerator || !value.sequence->items.empty();
    case Kind::kDict:
      return !value.dict->entries.empty();
    default:
      return true;
  }
}

bool Values::equal(const Value& a, const Value& b) {
  const Deeper deeper(this);
  if (!spend(8)) return false;
  if (a.is_number() && b.is_number()) return same_number(a, b);
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kNumeral:
    case Kind::kString:
    case Kind::kBytes:
      if (a.string->text.size() != b.string->text.size()) return false;
      spend(a.string->text.size());
      return a.string->text.view() == b.string->text.view();
    case Kind::kSequence: {
      const Sequence &x = *a.sequence, &y = *b.sequence;
      if (x.flavor == Flavor::kGenerator) return &x == &y;
      if (x.flavor != y.flavor || x.items.size() != y.items.size()) return false;
      for (size_t i = 0; i < x.items.size() && ok(); ++i) {
        if (!equal(x.items[i], y.items[i])) return false;
      }
      return true;
    }
    case Kind::kDict: {
      if (a.dict->entries.size() != b.dict->entries.size()) return false;
      for (const auto& [key, value] : a.dict->entries) {
        const Value* other = find(*b.dict, key);
        if (!ok() || other == nullptr || !equal(value, *other)) return false;
      }
      return true;
    }
    case Kind::kFunction:
      return a.function == b.function;
    case Kind::kMethod:
      return a.method->name == b.method->name && equal(a.method->self, b.method->self);
    default:
      return a.dict == b.dict;  // identity
  }
}

bool Values::less(const Value& a, const Value& b) {
  const Deeper deeper(this);
  if (!spend(8)) return false;
  if (a.is_number() && b.is_number()) {
    return a.is_whole() && b.is_whole() ? a.whole() < b.whole() : a.real() < b.real();
  }
  if (a.is(Kind::kUndefined) || b.is(Kind::kUndefined)) {
    fail_undefined(a.is(Kind::kUndefined) ? a : b);
    return false;
  }
  if (a.is(Kind::kString) && b.is(Kind::kString)) {
    spend(std::min(a.string->text.size(), b.string->text.size()));
    return a.string->text.view() < b.string->text.view();
  }
  const bool lists = a.is(Kind::kSequence) && b.is(Kind::kSequence) &&
                     a.sequence->flavor == b.sequence->flavor &&
                     a.sequence->flavor <= Flavor::kTuple;
  if (!lists) {
    fail("'<' not supported between instances of '%s' and '%s'", type_name(a), type_name(b));
    return false;
  }
  const std::vector<Value>&x = a.sequence->items, &y = b.sequence->items;
  for (size_t i = 0; i < std::min(x.size(), y.size()) && ok(); ++i) {
    if (!equal(x[i], y[i])) return less(x[i], y[i]);
  }
  return x.size() < y.size();
}

bool Values::contains(const Value& container, const Value& item) {
  switch (container.kind) {
    case Kind::kString: {
      if (!item.is(Kind::kString)) {
        fail("'in <string>' requires string as left operand, not %s", type_name(item));
        return false;
      }
      spend(container.string->text.size());
      return container.string->text.view().find(item.string->text.view()) != std::string_view::npos;
    }
    case Kind::kDict:
      return find(*container.dict, item) != nullptr;
    case Kind::kUndefined:
      return false;
    case Kind::kSequence: {
      Sequence& sequence = *container.sequence;
      const bool taking = sequence.flavor == Flavor::kGenerator;
      for (size_t i = sequence.next; i < sequence.items.size() && ok(); ++i) {
        if (taking) sequence.next = i + 1;
        if (equal(sequence.items[i], item)) return true;
      }
      return false;
    }
    default:
      fail("argument of type '%s' is not iterable", type_name(container));
      return false;
  }
}

std::vector<Value> Values::items(const Value& value) {
  std::vector<Value> out;
  switch (value.kind) {
    case Kind::kUndefined:
      break;
    case Kind::kSequence: {
      Sequence& sequence = *value.sequence;
      spend(16 * (sequence.items.size() - sequence.next));
      if (!ok()) break;
      out.reserve(sequence.items.size());
      for (size_t i = sequence.next; i < sequence.items.size(); ++i) {
        out.push_back(sequence.items[i]);
      }
      if (sequence.flavor == Flavor::kGenerator) sequence.next = sequence.items.size();
      break;
    }
    case Kind::kString: {
      const Text& all = value.string->text;
      for (size_t at = 0, bytes = 0; at < all.size() && ok(); at += bytes) {
        (void)code_point(all.view(), at, &bytes);
        out.push_back(text(all.slice(at, at + bytes), value.string->markup));
      }
      break;
    }
    case Kind::kDict:
      spend(16 * value.dict->entries.size());
      for (const auto& [key, item] : value.dict->entries) out.push_back(key);
      break;
    default:
      fail("'%s' object is not iterable", type_name(value));
  }
  return out;
}

}  // namespace sluice::jinja
