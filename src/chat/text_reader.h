// Reads streamed text character by character. Parsers are coroutines that wait while the next
// character is missing, so their results do not depend on how the text was split, and no text is
// read twice. Nobody resumes a coroutine from inside another one: resume() runs them one after
// another, so the stack does not grow with the text, and WebAssembly needs no tail calls.
#pragma once

#if __has_include(<coroutine>)
#include <coroutine>
#else
#include <experimental/coroutine>  // Emscripten's library
#pragma clang diagnostic ignored "-Wdeprecated-experimental-coroutine"
#endif
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sluice::chat {

#if __has_include(<coroutine>)
namespace coroutines = std;
#else
namespace coroutines = std::experimental;
#endif

// Around a control token in the text that parsers read. No UTF-8 contains these bytes.
inline constexpr char kTokenBegin = '\xFF', kTokenEnd = '\xFE';

class TextReader;

// A parser. It starts when it is awaited, and belongs to the reader of the one that awaits it.
template <typename T>
class [[nodiscard]] Step {
 public:
  struct promise_type;
  using Handle = coroutines::coroutine_handle<promise_type>;

  struct End {
    bool await_ready() noexcept { return false; }
    void await_suspend(Handle self) noexcept;
    void await_resume() noexcept {}
  };
  struct promise_type {
    TextReader* reader = nullptr;
    coroutines::coroutine_handle<> caller;
    std::optional<T> value;

    Step get_return_object() { return Step(Handle::from_promise(*this)); }
    coroutines::suspend_always initial_suspend() noexcept { return {}; }
    End final_suspend() noexcept { return {}; }
    void return_value(T result) { value = std::move(result); }
    void unhandled_exception() {}
  };

  Step(Step&& from) noexcept : handle_(std::exchange(from.handle_, nullptr)) {}
  Step& operator=(Step&&) = delete;
  ~Step() {
    if (handle_) handle_.destroy();
  }

  bool await_ready() { return false; }
  template <typename Promise>
  void await_suspend(coroutines::coroutine_handle<Promise> caller) {
    start(caller.promise().reader, caller);
  }
  T await_resume() { return std::move(*handle_.promise().value); }

  // Makes this the next parser that `reader` runs.
  void start(TextReader* reader, coroutines::coroutine_handle<> caller = {});
  // The result, once the parser has ended.
  [[nodiscard]] std::optional<T>& result() { return handle_.promise().value; }

 private:
  explicit Step(Handle handle) : handle_(handle) {}
  Handle handle_;
};

class TextReader {
 public:
  std::string text;
  size_t at = 0;
  bool ended = false;
  std::string wild;  // what '#' matched in the last mark that was read

  // Runs the current parser until it waits or ends.
  void resume();

  static constexpr int kEnd = -1;
  struct Peek {
    TextReader& reader;
    bool await_ready() { return reader.at < reader.text.size() || reader.ended; }
    void await_suspend(coroutines::coroutine_handle<> waiting) {
      reader.next_ = waiting;
      reader.waits_ = true;
    }
    int await_resume() {
      return reader.at < reader.text.size() ? static_cast<unsigned char>(reader.text[reader.at])
                                            : kEnd;
    }
  };
  // The next byte; kEnd at the end of the text.
  Peek peek() { return {*this}; }

  using Class = bool (*)(int c);
  // Reads all characters of a class. Returns false at the end of the text.
  Step<bool> skip(Class matches);
  // Reads `mark`. White space before and inside it is optional, and '#' matches a word. If the text
  // differs, reads nothing and returns false. `mark` must outlive the call.
  Step<bool> take(std::string_view mark);
  // Whether the text goes on with exactly `mark`. Reads nothing.
  Step<bool> begins(std::string_view mark);
  // Reads up to and including `mark`, and returns the text before it; nullopt, having read nothing,
  // if it never comes. `mark` must outlive the call.
  Step<std::optional<std::string>> until(std::string_view mark);
  // Reads a JSON object, array or string, and returns its text; nullopt if there is none.
  Step<std::optional<std::string>> json();
  // Reads a Python literal, or one of Gemma's, whose strings stand between `quote`. Returns it as
  // JSON; nullopt if there is none.
  Step<std::optional<std::string>> literal(std::string_view quote, int depth = 0);
  // Reads members up to and including `close`, and returns them as a JSON object.
  Step<std::optional<std::string>> members(char colon, char close, std::string_view quote,
                                           int depth = 0);

  static bool is_space(int c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
  static bool is_separator(int c) { return is_space(c) || c == ';' || c == ','; }

 private:
  template <typename T>
  friend class Step;

  Step<std::optional<std::string>> items(char close, std::string_view quote, int depth);
  Step<std::optional<std::string>> python_string();
  Step<bool> escape(std::string* out);

  coroutines::coroutine_handle<> next_;
  bool waits_ = false;
  // The last half of a surrogate pair that escape() read, and where its text ended.
  uint32_t high_ = 0;
  size_t high_end_ = 0;
};

template <typename T>
void Step<T>::start(TextReader* reader, coroutines::coroutine_handle<> caller) {
  handle_.promise().reader = reader;
  handle_.promise().caller = caller;
  reader->next_ = handle_;
}

template <typename T>
void Step<T>::End::await_suspend(Handle self) noexcept {
  self.promise().reader->next_ = self.promise().caller;
}

// The members of a JSON object in the order in which their names first came; of several with one
// name, the last counts.
class ObjectWriter {
 public:
  void add(const std::string& name, std::string value);
  [[nodiscard]] std::string json() const;

 private:
  std::vector<std::pair<std::string, std::string>> members_;
  std::unordered_map<std::string, size_t> by_name_;
};

// A number as Python or JavaScript writes it, as JSON; nullopt if it is none.
[[nodiscard]] std::optional<std::string> json_number(std::string_view word);

}  // namespace sluice::chat
