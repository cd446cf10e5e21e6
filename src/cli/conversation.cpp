// Saves and loads conversations as JSON.
#include "cli/conversation.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/atomic_file.h"
#include "platform/utf8_path.h"

namespace sluice::cli {
namespace {

using Json = nlohmann::json;

Json list_of(const std::vector<Message>& messages) {
  Json list = Json::array();
  for (const Message& message : messages) {
    Json one = {{"role", message.role}, {"content", message.content}};
    if (!message.thought.empty()) one["reasoning_content"] = message.thought;
    list.push_back(std::move(one));
  }
  return list;
}

std::string dump(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Status no_conversation(const std::string& path, const char* why) {
  return error(Code::kInvalidArgument, "\"%.256s\" is not a conversation: %s", path.c_str(), why);
}

}  // namespace

std::string to_json(const std::vector<Message>& messages) {
  return dump(list_of(messages), -1);
}

Status save(const std::vector<Message>& messages, const std::string& path,
            const std::string& model) {
  Result<AtomicFile> file = AtomicFile::create(path, model);
  if (!file.ok()) return file.status();
  const std::string text = dump({{"messages", list_of(messages)}}, 2) + "\n";
  file->write(text.data(), text.size());
  return file->finish();
}

Result<std::vector<Message>> load(const std::string& path) {
  std::ifstream file(platform::to_path(path), std::ios::binary);
  std::string text(kMaxConversation + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.gcount() == 0 && !file.eof()) {
    return error(Code::kNotFound, "cannot read the file \"%.256s\"", path.c_str());
  }
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxConversation) return no_conversation(path, "it is longer than 16 MB");
  const Json value = Json::parse(text, nullptr, false);
  if (value.is_discarded()) return no_conversation(path, "it is not JSON");
  const auto list = value.is_object() ? value.find("messages") : value.end();
  if (!value.is_object() || list == value.end() || !list->is_array()) {
    return no_conversation(path, "it has no \"messages\" array");
  }
  if (list->size() > kMaxMessages) return no_conversation(path, "it has too many messages");
  std::vector<Message> out;
  for (const Json& each : *list) {
    const auto text_of = [&](const char* key) -> const std::string* {
      const auto found = each.is_object() ? each.find(key) : each.end();
      return each.is_object() && found != each.end() && found->is_string()
                 ? found->get_ptr<const std::string*>()
                 : nullptr;
    };
    const std::string *role = text_of("role"), *content = text_of("content");
    if (role == nullptr || content == nullptr) {
      return no_conversation(path, "a message has no \"role\" or no \"content\" string");
    }
    const std::string* thought = text_of("reasoning_content");
    out.push_back({*role, *content, thought != nullptr ? *thought : ""});
  }
  return out;
}

}  // namespace sluice::cli
