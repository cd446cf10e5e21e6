// Messages in the form in which they are converted, and the choices that differ between templates.
// read_messages() takes what callers send, whatever its age and dialect; write_messages() gives a
// template what it expects.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "jinja/interpreter.h"

namespace sluice::chat {

enum class Content : uint8_t { kText, kEmpty, kNull, kAbsent };

// The names under which a message's reasoning is given.
enum class Reasoning : uint8_t { kNone, kReasoningContent, kReasoning, kThinking };
inline constexpr std::string_view kReasoningNames[] = {"", "reasoning_content", "reasoning",
                                                       "thinking"};

struct Call {
  jinja::Value call;       // as given; a dictionary if `function` is one
  jinja::Value function;   // a dictionary; undefined: the call stays as it is
  jinja::Value id;         // undefined: none
  jinja::Value arguments;  // parsed, if they are JSON
  jinja::Value raw;        // their text, if they were given as text
  bool broken = false;     // the text is not JSON
};

// How calls are written into a message's text, for templates that show no calls.
enum class CallText : uint8_t {
  kNone,
  kHermes,  // <tool_call>{"name": …, "arguments": {…}}</tool_call>
  kList,    // <|tool_call|>[{"name": …, "arguments": {…}}]
  kPython   // <|tool_call_start|>[name(key="value")]<|tool_call_end|>
};

// A picture's mark in a content, as a string of the caller's.
struct PictureMark {
  uint32_t source = 0;   // Values::source
  uint32_t picture = 0;  // its number in the request
};

struct Message {
  std::string role;
  jinja::Value given;  // the dictionary, without members that are null
  Content form = Content::kAbsent;
  jinja::Value content;
  Reasoning reasoning = Reasoning::kNone;
  jinja::Value thought;
  std::vector<Call> calls;
  std::vector<PictureMark> pictures;  // in `content`
  jinja::Value answered;              // of a tool's result: the id of its call
  uint32_t place = 0;                 // in the request

  [[nodiscard]] bool is_system() const { return role == "system" || role == "developer"; }
};

// What an assistant's message has; templates treat them differently.
struct Shape {
  Content form = Content::kText;
  bool calls = false;
  Reasoning reasoning = Reasoning::kNone;

  [[nodiscard]] size_t index() const {
    return (static_cast<size_t>(form) * 2 + (calls ? 1 : 0)) * 4 + static_cast<size_t>(reasoning);
  }
  static constexpr size_t kCount = 4 * 2 * 4;
};
[[nodiscard]] Shape shape_of(const Message& message);

// Where system and developer messages stand.
enum class Systems : uint8_t { kSystem, kDeveloper, kSeveral, kLaterSystem, kLaterDeveloper };
inline constexpr size_t kSystemsCount = 5;

enum class SystemAs : uint8_t {
  kGiven,
  kSystem,  // the role system
  kJoined,  // several at the beginning are one
  kMerged   // put before the text of the user's message that follows
};

// How a picture of the user's is written: a mark in the text, or a part of this type.
enum class PictureAs : uint8_t { kMark, kImage, kImageUrl };

// How messages are written for one template.
struct Manner {
  struct Writing {
    Content form = Content::kText;
    bool split = false;  // text and tool calls are two messages
    bool reasoning = true;
  };
  bool empty_tools = false;  // no tools are an empty list
  bool text_parts = false;   // texts are lists of typed parts
  PictureAs pictures = PictureAs::kMark;
  std::string picture_text;  // what the template prints for a picture that is a part
  std::array<SystemAs, kSystemsCount> systems{};
  bool text_arguments = false;  // arguments of tool calls are JSON text
  bool make_ids = false;        // calls without id get one
  bool short_ids = false;       // ids have nine letters and digits, as Mistral's have
  bool tool_names = false;      // a tool's result has the name of its tool
  bool one_call = false;        // parallel calls are written one after another
  bool wrap_broken = false;     // arguments that are not JSON are a member of an object
  CallText call_text = CallText::kNone;
  bool user_results = false;               // results are the user's, in <tool_response>
  Content call_content = Content::kEmpty;  // a content that calls without text may have
  std::array<Reasoning, 4> reasoning{Reasoning::kNone, Reasoning::kReasoningContent,
                                     Reasoning::kReasoning, Reasoning::kThinking};
  std::array<Writing, Shape::kCount> contents{};

  Manner();
};

// Which choices of a manner matter for a conversation.
struct Needs {
  bool texts = false, pictures = false, calls = false, parallel = false, broken = false;
  std::array<bool, kSystemsCount> systems{};
  std::array<bool, 4> reasoning{};
  std::array<bool, Shape::kCount> contents{};
};

// A string of the caller's that the prompt must show.
struct Shown {
  uint32_t source = 0;   // Values::source
  uint32_t message = 0;  // its place in the request
  bool call = false;     // part of a tool call
};

// Messages for a template.
struct Normalized {
  jinja::Value messages;
  std::vector<std::string> roles;  // as given
  std::vector<Shown> shown;
  bool empty_tools = false;             // tools are an empty list instead of none
  std::vector<PictureMark> marks;       // of pictures that are marks in texts
  std::vector<uint32_t> picture_parts;  // numbers of those that are parts, in order
  std::string picture_text;             // what the template prints for each of those
};

// The mark of this source, or null. Marks ascend by source.
[[nodiscard]] const PictureMark* find_picture(const std::vector<PictureMark>& marks,
                                              uint32_t source);

// `n_pictures`: of take_pictures(). Errors: kInvalidArgument; kNotSupported (parts of other types).
[[nodiscard]] Result<std::vector<Message>> read_messages(jinja::Interpreter& in,
                                                         const jinja::Program& program,
                                                         const jinja::Value& messages, bool mark,
                                                         size_t n_pictures);
[[nodiscard]] Needs needs_of(const std::vector<Message>& messages);
[[nodiscard]] Normalized write_messages(jinja::Interpreter& in, const Manner& manner,
                                        std::vector<Message> messages);

// The member of a dictionary; undefined if missing or not a dictionary.
[[nodiscard]] jinja::Value member(jinja::Interpreter& in, const jinja::Value& value,
                                  std::string_view name);

}  // namespace sluice::chat
