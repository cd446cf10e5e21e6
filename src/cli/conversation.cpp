// Saves and loads conversations as JSON.
#include "cli/conversation.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/atomic_file.h"
#include "platform/utf8_path.h"

namespace sluice::cli {
namespace {

using Json = nlohmann::json;

Json parts_of(const Message& message) {
  Json parts = Json::array();
  for (const std::string& file : message.pictures) {
    parts.push_back({{"type", "image_url"}, {"image_url", {{"url", file}}}});
  }
  parts.push_back({{"type", "text"}, {"text", message.content}});
  return parts;
}

// Reads what parts_of() writes; false if it is something else.
bool read_parts(const Json& content, Message* out) {
  for (const Json& part : content) {
    const std::string type = part.is_object() ? part.value("type", Json()).dump() : "";
    const Json url = part.is_object() ? part.value("image_url", Json()) : Json();
    if (type == "\"text\"" && part.contains("text") && part["text"].is_string()) {
      out->content += part["text"].get<std::string>();
    } else if (type == "\"image_url\"" && url.is_object() && url.contains("url") &&
               url["url"].is_string()) {
      out->pictures.push_back(url["url"].get<std::string>());
    } else {
      return false;
    }
  }
  return true;
}

Json list_of(const std::vector<Message>& messages) {
  Json list = Json::array();
  for (const Message& message : messages) {
    Json one = {{"role", message.role}, {"content", message.content}};
    if (!message.thought.empty()) one["reasoning_content"] = message.thought;
    if (!message.pictures.empty()) one["content"] = parts_of(message);
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
    const bool parts = each.is_object() && each.contains("content") && each["content"].is_array();
    Message message;
    const bool read = parts ? read_parts(each["content"], &message) : content != nullptr;
    if (role == nullptr || !read) {
      return no_conversation(path, "a message has no \"role\" or no \"content\" string");
    }
    message.role = *role;
    if (content != nullptr) message.content = *content;
    const std::string* thought = text_of("reasoning_content");
    if (thought != nullptr) message.thought = *thought;
    out.push_back(std::move(message));
  }
  return out;
}

}  // namespace sluice::cli
