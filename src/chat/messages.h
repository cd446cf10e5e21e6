// Writes OpenAI's messages as one template expects them, and tells whether a prompt shows all of
// them. Templates differ in the roles that they know, in whether a missing content is null, absent
// or empty, in how arguments of tool calls are given, and so on. A template does not say which:
// short conversations are rendered to find out, when a request first needs to know.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>

#include "base/status.h"
#include "chat/message_forms.h"

namespace sluice::chat {

struct ModelTexts;

// The conversion of messages for one parsed template. Thread-safe.
class Normalizer {
 public:
  // `program` and `texts` must outlive the object. `tools`: for requests with tools.
  Normalizer(const jinja::Program& program, const ModelTexts& texts, bool tools)
      : program_(program), texts_(texts), tools_(tools) {}

  // How messages are read and written. `mark`: as for jinja::read_json().
  struct Options {
    bool mark = true;
    size_t n_pictures = 0;       // of take_pictures()
    bool picture_marks = false;  // pictures are marks in texts, even where parts are possible
  };
  // Converts parsed messages. Errors: kInvalidArgument for messages that no template could show.
  [[nodiscard]] Result<Normalized> normalize(jinja::Interpreter& in, const jinja::Value& messages,
                                             const Options& options) const;

 private:
  struct Trial {
    bool complete = false;  // rendered, and nothing is missing
    std::string text;
    // How often Python's and JSON's word for nothing are in the text.
    [[nodiscard]] size_t nothings() const;
  };
  [[nodiscard]] Trial attempt(const Manner& manner, std::string_view messages) const;
  void find_texts() const;
  void find_pictures() const;
  void find_systems(Systems kind) const;
  void find_calls() const;
  void find_call_text() const;
  void find_parallel() const;
  void find_broken() const;
  void find_reasoning(Reasoning given) const;
  void find_content(Shape shape) const;
  void find_out(const Needs& needs) const;

  const jinja::Program& program_;
  const ModelTexts& texts_;
  const bool tools_;
  mutable std::mutex mutex_;
  mutable Manner manner_;
  mutable Needs known_;
};

// The first string of `shown` that the output omits, or null. White space may be missing, and
// what the template itself names: marks such as /no_think, and an assistant's reasoning up to
// </think>.
[[nodiscard]] const Shown* find_missing(const jinja::Interpreter& in, const jinja::Program& program,
                                        const jinja::Text& output, const Normalized& messages);

// Sets the variables of every render: special tokens.
void set_tokens(jinja::Interpreter& in, const ModelTexts& texts);

}  // namespace sluice::chat
