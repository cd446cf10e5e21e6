// The values of one rendering: creates, compares and prints them as Python does. Owns them all, so
// values point at each other freely. Templates are untrusted, so steps, nesting, text and work are
// limited. The first failure is kept (failure()); everything after it has no effect.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "jinja/value.h"

namespace sluice::jinja {

inline constexpr size_t kMaxText = 1u << 24;  // bytes of one string, and of all output

class Values {
 public:
  Values(const Values&) = delete;
  Values& operator=(const Values&) = delete;

  Value fail(const char* format, ...) __attribute__((format(SLUICE_PRINTF, 2, 3)));
  // Fails with the message stored in an undefined value.
  Value fail_undefined(const Value& value);
  [[nodiscard]] bool ok() const { return status_.ok(); }
  [[nodiscard]] const Status& failure() const { return status_; }
  // Counts characters and objects against the work limit. False once the limit is exceeded.
  bool spend(uint64_t amount);

  template <typename T, typename... Args>
  T* make(Args&&... args) {
    spend(kThing);
    auto object = std::make_unique<T>(std::forward<Args>(args)...);
    T* raw = object.get();
    arena_.push_back(std::move(object));
    return raw;
  }
  [[nodiscard]] Value text(Text text, bool markup = false);
  [[nodiscard]] Value text(std::string_view bytes) { return text(Text(bytes)); }
  // A string of the caller's, whose spans say where it is shown. `content`: tokenized without
  // control tokens.
  [[nodiscard]] Value given(std::string_view bytes, bool content);
  // The text of a string of given(), by its Span::source.
  [[nodiscard]] std::string_view source(uint32_t number) const {
    return sources_[number - 1]->text.view();
  }
  [[nodiscard]] Value sequence(std::vector<Value> items, Flavor flavor = Flavor::kList);
  [[nodiscard]] Value undefined(std::string_view why);
  void put(Dict* dict, Value key, Value value);
  // The value of a key, or null.
  [[nodiscard]] const Value* find(const Dict& dict, const Value& key);

  [[nodiscard]] bool truth(const Value& value) const;
  [[nodiscard]] bool equal(const Value& a, const Value& b);
  [[nodiscard]] bool less(const Value& a, const Value& b);
  [[nodiscard]] bool contains(const Value& container, const Value& item);
  // The items of an iterable; for a generator, the remaining ones.
  [[nodiscard]] std::vector<Value> items(const Value& value);
  // Appends str(value); appends repr(value).
  void print(const Value& value, Text* out);
  void print_repr(const Value& value, Text* out);
  [[nodiscard]] Text str(const Value& value);
  struct JsonStyle {
    int64_t indent = -1;  // -1: on one line
    bool ascii = false;
    bool sorted = false;
    Text item = Text(", "), key = Text(": ");
  };
  void print_json(const Value& value, const JsonStyle& style, int64_t level, Text* out);

  // Counts nested evaluations in its lifetime.
  class Deeper {
   public:
    explicit Deeper(Values* values);
    ~Deeper() { --values_->depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Values* values_;
  };

 protected:
  // `share`: the limits of steps and work are divided by it.
  explicit Values(uint32_t share) : share_(share) {}
  ~Values() = default;

  // The line of the template that runs now, for errors.
  uint32_t line_ = 1;

 private:
  static constexpr uint64_t kThing = 64;

  const uint32_t share_;
  Arena arena_;
  std::vector<const String*> sources_;
  Status status_;
  uint64_t steps_ = 0, work_ = 0;
  int depth_ = 0;
};

struct Keyed {
  Value key, item;
};
// Sorts by key, and keeps the order of equal ones. Unlike std::sort it is safe if the comparison is
// inconsistent.
void sort_keyed(Values& values, std::vector<Keyed>* items, bool reverse);

// A character as Python escapes it: \xe9, \u20ac or \U0001f600.
[[nodiscard]] std::string escaped(uint32_t cp);
[[nodiscard]] const char* type_name(const Value& value);
[[nodiscard]] bool is_integer_numeral(const Value& value);
// Formats a number as Python does.
[[nodiscard]] std::string float_text(double number);

}  // namespace sluice::jinja
