// Line editing by libedit, with input that signals can interrupt.
#include "cli/line_editor.h"

#include <histedit.h>

#include <string_view>

#include "cli/terminal.h"
#include "platform/console.h"
#include "tokenizer/utf8.h"

namespace sluice::cli {
namespace {

class Libedit final : public LineEditor {
 public:
  Libedit(const char* prompt, std::function<Byte(char*)> next)
      : prompt_(prompt), next_(std::move(next)) {
    platform::use_utf8_locale();
    line_ = el_init("sluice", stdin, stdout, stderr);
    history_ = history_init();
    if (!usable()) return;
    ::history(history_, &event_, H_SETSIZE, 500);
    ::history(history_, &event_, H_SETUNIQUE, 1);
    el_set(line_, EL_CLIENTDATA, this);
    el_set(line_, EL_PROMPT, &Libedit::show_prompt);
    el_set(line_, EL_EDITOR, "emacs");
    el_set(line_, EL_HIST, ::history, history_);
    el_set(line_, EL_GETCFN, &Libedit::next_character);
    el_source(line_, nullptr);                                   // reads the user's editrc
    el_set(line_, EL_SETTY, "-d", "-icrnl", "-inlcr", nullptr);  // a paste keeps CR LF
    const char* keys = nullptr;
    if (el_get(line_, EL_EDITOR, &keys) != 0 || std::string_view(keys) != "emacs") return;
    takes_pastes_ =
        el_wset(line_, EL_ADDFN, L"insert-paste", L"Insert pasted text", &insert_paste) == 0 &&
        el_wset(line_, EL_BIND, L"\\e[200~", L"insert-paste", nullptr) == 0;
  }
  ~Libedit() override {
    if (history_ != nullptr) history_end(history_);
    if (line_ != nullptr) el_end(line_);
  }
  [[nodiscard]] bool usable() const { return line_ != nullptr && history_ != nullptr; }

  [[nodiscard]] bool takes_pastes() const override { return takes_pastes_; }
  [[nodiscard]] bool read(std::string* line) override {
    el_resize(line_);
    int n = 0;
    const char* text = el_gets(line_, &n);
    if (text == nullptr || n <= 0) return false;
    line->assign(text);
    return true;
  }
  void remember(const std::string& line) override {
    ::history(history_, &event_, H_ENTER, line.c_str());
  }

 private:
  static Libedit* of(EditLine* line) {
    Libedit* self = nullptr;
    el_get(line, EL_CLIENTDATA, &self);
    return self;
  }
  static char* show_prompt(EditLine* line) { return const_cast<char*>(of(line)->prompt_); }
  // Replaces libedit's own read, which would ignore signals.
  static int next_character(EditLine* line, wchar_t* out) {
    std::string bytes;
    for (;;) {
      char byte = 0;
      const Byte got = of(line)->next_(&byte);
      if (got != Byte::kRead) return got == Byte::kEnd ? 0 : -1;
      bytes += byte;
      const tokenizer::Decoded decoded = tokenizer::decode_utf8(bytes, 0);
      if (decoded.cp == tokenizer::kInvalidCodepoint && tokenizer::is_unfinished_utf8(bytes)) {
        continue;
      }
      const bool valid = decoded.cp != tokenizer::kInvalidCodepoint;
      *out = static_cast<wchar_t>(valid ? decoded.cp : 0xfffd);
      return 1;
    }
  }

  // Inserts what follows, up to the mark that ends a paste.
  static unsigned char insert_paste(EditLine* line, wint_t) {
    constexpr std::string_view kEnd = "\033[201~";
    std::string bytes;
    while (!bytes.ends_with(kEnd)) {
      char byte = 0;
      if (of(line)->next_(&byte) != Byte::kRead) return CC_EOF;
      bytes += byte;
      // What is too long is dropped later: its beginning says so, and its end is awaited.
      if (bytes.size() > 2 * kMaxLine) bytes.erase(kMaxLine + 1, kMaxLine - kEnd.size());
    }
    bytes.resize(bytes.size() - kEnd.size());
    std::string text;
    tokenizer::append_valid_utf8(bytes, tokenizer::Replace::kEachPart, &text);
    std::wstring wide;
    for (size_t at = 0; at < text.size();) {
      const tokenizer::Decoded decoded = tokenizer::decode_utf8(text, at);
      const char* const rest = text.data() + at;
      at += decoded.bytes;
      const bool cr = decoded.cp == '\r';  // terminals send it for a line end
      if (decoded.cp == 0 || (cr && at < text.size() && rest[1] == '\n')) continue;
      wide += cr ? L'\n' : static_cast<wchar_t>(decoded.cp);
    }
    return wide.empty() || el_winsertstr(line, wide.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  const char* prompt_;
  std::function<Byte(char*)> next_;
  bool takes_pastes_ = false;
  EditLine* line_ = nullptr;
  History* history_ = nullptr;
  HistEvent event_{};
};

}  // namespace

std::unique_ptr<LineEditor> LineEditor::create(const char* prompt,
                                               std::function<Byte(char*)> next) {
  auto editor = std::make_unique<Libedit>(prompt, std::move(next));
  if (!editor->usable()) return nullptr;
  return editor;
}

}  // namespace sluice::cli
