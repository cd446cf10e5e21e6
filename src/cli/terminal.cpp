// Signals, and lines with libedit.
#include "cli/terminal.h"

#include <fcntl.h>
#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstring>

#include "base/printable.h"
#include "cli/cli.h"
#include "tokenizer/utf8.h"

namespace sluice::cli {

Signals::Signals() {
  if (pipe2(pipe_, O_CLOEXEC | O_NONBLOCK) != 0) pipe_[0] = pipe_[1] = -1;
  sigemptyset(&set_);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&set_, signal);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  thread_ = std::thread([this] { loop(); });
}

Signals::~Signals() {
  pthread_kill(thread_.native_handle(), SIGUSR1);
  thread_.join();
  for (const int fd : pipe_) {
    if (fd >= 0) close(fd);
  }
}

void Signals::loop() {
  for (;;) {
    int signal = 0;
    sigwait(&set_, &signal);
    if (signal == SIGUSR1) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!wake_) {
      fail(error(Code::kAborted, "interrupted"));
      _exit(130);
    }
    if (signal == SIGTERM) terminated_ = true;
    interrupted_ = true;
    [[maybe_unused]] const ssize_t n = write(pipe_[1], "", 1);  // full: readable already
    wake_();
  }
}

void Signals::handle(std::function<void()> wake) {
  const std::lock_guard<std::mutex> lock(mutex_);
  wake_ = std::move(wake);
}

void Signals::clear() {
  char bytes[64];
  while (::read(pipe_[0], bytes, sizeof bytes) > 0) {
  }
  interrupted_ = false;
}

// --- lines

struct LineReader::Editor {
  EditLine* line = nullptr;
  History* history = nullptr;
  HistEvent event{};
  const char* prompt;
  LineReader* reader;

  Editor(LineReader* owner, const char* text) : prompt(text), reader(owner) {
    std::setlocale(LC_CTYPE, "");
    if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
    line = el_init("sluice", stdin, stdout, stderr);
    history = history_init();
    if (line == nullptr || history == nullptr) return;
    ::history(history, &event, H_SETSIZE, 500);
    ::history(history, &event, H_SETUNIQUE, 1);
    el_set(line, EL_CLIENTDATA, this);
    el_set(line, EL_PROMPT, &Editor::show_prompt);
    el_set(line, EL_EDITOR, "emacs");
    el_set(line, EL_HIST, ::history, history);
    el_set(line, EL_GETCFN, &Editor::next_character);
    el_source(line, nullptr);  // the user's own settings
  }
  ~Editor() {
    if (history != nullptr) history_end(history);
    if (line != nullptr) el_end(line);
  }
  Editor(const Editor&) = delete;
  Editor& operator=(const Editor&) = delete;

  static Editor* of(EditLine* line) {
    Editor* self = nullptr;
    el_get(line, EL_CLIENTDATA, &self);
    return self;
  }
  static char* show_prompt(EditLine* line) { return const_cast<char*>(of(line)->prompt); }
  // libedit's own waits for ever, whatever signals come.
  static int next_character(EditLine* line, wchar_t* out) {
    std::string bytes;
    for (;;) {
      char byte = 0;
      const Byte got = of(line)->reader->next(&byte);
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
};

LineReader::LineReader(Signals& signals, const char* prompt) : signals_(signals) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) return;
  editor_ = std::make_unique<Editor>(this, prompt);
  if (editor_->line == nullptr || editor_->history == nullptr) editor_.reset();
}

LineReader::~LineReader() = default;

LineReader::Byte LineReader::next(char* byte) {
  if (at_ == buffer_.size()) {
    at_ = 0;
    buffer_.resize(4096);
    pollfd ends[] = {{STDIN_FILENO, POLLIN, 0}, {signals_.descriptor(), POLLIN, 0}};
    ssize_t n = 0;
    do {
      n = poll(ends, 2, -1) < 0 ? -1 : 0;
      if (n == 0 && (ends[1].revents & POLLIN) != 0) break;
      if (n == 0) n = ::read(STDIN_FILENO, buffer_.data(), buffer_.size());
    } while (n < 0 && (errno == EINTR || errno == EAGAIN));
    buffer_.resize(n > 0 ? static_cast<size_t>(n) : 0);
    if ((ends[1].revents & POLLIN) != 0) return Byte::kInterrupted;
    if (n <= 0) return Byte::kEnd;
  }
  *byte = buffer_[at_++];
  return Byte::kRead;
}

Input LineReader::read(std::string* line) {
  std::string bytes;
  const Input input = editor_ != nullptr ? read_edited(&bytes) : read_plain(&bytes);
  line->clear();
  if (input == Input::kLine) {
    tokenizer::append_valid_utf8(bytes, tokenizer::Replace::kEachPart, line);
  }
  return input;
}

Input LineReader::read_plain(std::string* line) {
  bool long_line = false;
  for (;;) {
    char byte = 0;
    const Byte got = next(&byte);
    if (got == Byte::kInterrupted) return Input::kInterrupted;
    if (got == Byte::kEnd && line->empty()) return Input::kEnd;
    if (got == Byte::kEnd || byte == '\n') break;
    long_line = long_line || line->size() == kMaxLine;
    if (!long_line) *line += byte;
  }
  if (line->ends_with('\r')) line->pop_back();
  return long_line ? Input::kTooLong : Input::kLine;
}

Input LineReader::read_edited(std::string* line) {
  el_resize(editor_->line);
  int n = 0;
  const char* text = el_gets(editor_->line, &n);
  if (signals_.interrupted()) return Input::kInterrupted;
  if (text == nullptr || n <= 0) return Input::kEnd;
  line->assign(text);
  while (line->ends_with('\n') || line->ends_with('\r')) line->pop_back();
  if (line->size() > kMaxLine) return Input::kTooLong;
  if (!line->empty()) history(editor_->history, &editor_->event, H_ENTER, text);
  return Input::kLine;
}

std::string shown(std::string_view text) {
  std::string out(text);
  size_t from = 0;
  for (size_t i = 0; i <= out.size(); ++i) {
    if (i < out.size() && out[i] != '\n' && out[i] != '\t') continue;
    hide_controls({out.data() + from, i - from});
    from = i + 1;
  }
  return out;
}

}  // namespace sluice::cli
