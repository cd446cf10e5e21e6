// Reads streamed text. Parsers are coroutines that wait while text is missing, so their results do
// not depend on how the text was split, and no text is read twice. They are built from elementary
// reads (a mark, a class of characters, JSON), which are no coroutines: a read that lacks text
// keeps its place and goes on when more has come. Nobody resumes a coroutine from inside another
// one: resume() runs them one after another, so the stack does not grow with the text, and
// WebAssembly needs no tail calls.
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
    T value{};

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
  T await_resume() { return std::move(handle_.promise().value); }

  // Makes this the next parser that `reader` runs.
  void start(TextReader* reader, coroutines::coroutine_handle<> caller = {});
  // The result, once the parser has ended.
  [[nodiscard]] T& result() { return handle_.promise().value; }

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
  using Class = bool (*)(int c);

  // An elementary read. It is trivially destructible: GCC 12 destroys awaited temporaries twice.
  struct Read {
    TextReader& reader;
    bool (TextReader::*poll)(Read*);  // false: more text is needed
    std::string_view mark = {};       // what of it is still to be read
    Class skipped = nullptr;          // characters to skip next
    bool wild = false;                // they are what '#' matches
    bool found = false;
    size_t start = reader.at;
    size_t from = start;  // where to go on
    size_t depth = 0;     // of nested JSON
    int quote = 0;        // that ends the string which is read

    bool await_ready() { return (reader.*poll)(this); }
    void await_suspend(coroutines::coroutine_handle<> waiting) {
      reader.next_ = waiting;
      reader.waits_for_ = this;
    }
  };
  struct ReadByte : Read {
    int await_resume() {
      return reader.at < reader.text.size() ? static_cast<unsigned char>(reader.text[reader.at])
                                            : kEnd;
    }
  };
  struct ReadBool : Read {
    bool await_resume() { return found; }
  };
  struct ReadText : Read {
    std::optional<std::string> await_resume() { return reader.taken(*this); }
  };

  // The next byte; kEnd at the end of the text.
  ReadByte peek() { return {{*this, &TextReader::poll_byte}}; }
  // Reads all characters of a class.
  ReadBool skip(Class matches) { return {{*this, &TextReader::poll_mark, {}, matches}}; }
  // Reads `mark`. White space before and inside it is optional, and '#' matches a word. If the text
  // differs, reads nothing and returns false. `mark` must outlive the call.
  ReadBool take(std::string_view mark) { return {{*this, &TextReader::poll_mark, mark, is_space}}; }
  // Whether the text goes on with exactly `mark`. Reads nothing.
  ReadBool begins(std::string_view mark) { return {{*this, &TextReader::poll_begins, mark}}; }
  // Reads up to and including `mark`, and returns the text before it; nullopt, having read nothing,
  // if it never comes. `mark` must outlive the call.
  ReadText until(std::string_view mark) { return {{*this, &TextReader::poll_until, mark}}; }
  // Reads a JSON object, array or string, and returns its text; nullopt if there is none.
  ReadText json() { return {{*this, &TextReader::poll_json}}; }
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
  // Reads a string in Python's quotes; returns what stands between them.
  ReadText python_string() { return {{*this, &TextReader::poll_string}}; }

  bool poll_byte(Read* read);
  bool poll_mark(Read* read);
  bool poll_begins(Read* read);
  bool poll_until(Read* read);
  bool poll_json(Read* read);
  bool poll_string(Read* read);
  [[nodiscard]] std::optional<std::string> taken(const Read& read) const;

  coroutines::coroutine_handle<> next_;
  Read* waits_for_ = nullptr;
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
};

// A number as Python or JavaScript writes it, as JSON; nullopt if it is none.
[[nodiscard]] std::optional<std::string> json_number(std::string_view word);

}  // namespace sluice::chat
