#include "chat/pictures.h"

#include <algorithm>

#include "base/concat.h"
#include "jinja/json_text.h"

namespace sluice::chat {
namespace {

constexpr std::string_view kData = "data:";

std::string_view text_member(std::string_view object, std::string_view name) {
  const auto found = json_member(object, name);
  return found && json_type(*found) == JsonType::kString ? *found : std::string_view();
}

// The first of `names` that the object has as a string.
std::string first_text(std::string_view object, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (const std::string_view text = text_member(object, name); !text.empty()) {
      return json_string(text);
    }
  }
  return {};
}

std::string data_url(std::string_view type, std::string data) {
  if (data.empty() || data.starts_with(kData)) return data;
  return concat({kData, type, ";base64,", data});
}

// The URL of a picture; "" if the part has none.
std::string source_of(std::string_view part, std::string_view type) {
  if (type == "image_url" || type == "input_image") {
    const std::string_view given = json_member(part, "image_url").value_or("");
    return json_type(given) == JsonType::kObject ? first_text(given, {"url"}) : json_string(given);
  }
  const std::string_view source = json_member(part, "source").value_or("");
  if (json_type(source) == JsonType::kObject) {
    if (std::string url = first_text(source, {"url"}); !url.empty()) return url;
    return data_url(first_text(source, {"media_type"}), first_text(source, {"data"}));
  }
  if (std::string url = first_text(part, {"url", "image"}); !url.empty()) return url;
  return data_url("", first_text(part, {"base64"}));
}

class Taker {
 public:
  explicit Taker(std::vector<std::string>* sources) : sources_(*sources) {}

  Result<std::string> list(std::string_view messages) {
    std::string out;
    for (const std::string_view each : json_items(messages)) {
      append_json_item(json_type(each) == JsonType::kObject ? message(each) : std::string(each),
                       &out);
      if (!status_.ok()) return status_;
    }
    return concat({"[", out, "]"});
  }

 private:
  std::string picture(std::string source) {
    if (source.empty()) {
      status_ = error(Code::kInvalidArgument, "a message part of type 'image' has no picture");
    } else if (sources_.size() == kMaxPictures) {
      status_ =
          error(Code::kInvalidArgument, "the messages have more than %zu pictures", kMaxPictures);
    }
    sources_.push_back(std::move(source));
    return concat({R"({"type":"image","picture":)", std::to_string(sources_.size() - 1), "}"});
  }

  std::string part(std::string_view given) {
    const std::string type = first_text(given, {"type"});
    if (!is_picture_type(type)) return std::string(given);
    std::string source = source_of(given, type);
    if (source.empty() && status_.ok() &&
        (json_member(given, "file_id") ||
         json_member(json_member(given, "source").value_or(""), "file_id"))) {
      status_ = error(Code::kNotSupported,
                      "a picture cannot be named by the id of a file, because nothing is stored");
    }
    return status_.ok() ? picture(std::move(source)) : std::string();
  }

  std::string message(std::string_view given) {
    const std::string_view content = json_member(given, "content").value_or("");
    std::string parts;
    for (const std::string_view image : json_items(json_member(given, "images").value_or(""))) {
      append_json_item(picture(data_url("", json_string(image))), &parts);
    }
    const bool own = !parts.empty();
    for (const std::string_view each : json_items(content)) append_json_item(part(each), &parts);
    if (own && json_type(content) == JsonType::kString) {
      append_json_item(concat({R"({"type":"text","text":)", content, "}"}), &parts);
    }
    if (parts.empty()) return std::string(given);
    std::string out;
    for (const JsonMember& member : json_members(given)) {
      if (member.name == "content" || (own && member.name == "images")) continue;
      append_json_item(concat({json_quote(member.name), ":", member.value}), &out);
    }
    append_json_item(concat({R"("content":[)", parts, "]"}), &out);
    return concat({"{", out, "}"});
  }

  std::vector<std::string>& sources_;
  Status status_;
};

}  // namespace

bool is_picture_type(std::string_view type) {
  return type == "image" || type == "image_url" || type == "input_image";
}

Result<std::string> take_pictures(std::string_view messages, std::vector<std::string>* sources) {
  if (messages.find("image") == std::string_view::npos || !is_json(messages)) {
    return std::string(messages);
  }
  return Taker(sources).list(messages);
}

}  // namespace sluice::chat
