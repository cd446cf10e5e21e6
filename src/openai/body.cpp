#include "openai/body.h"

#include <algorithm>

#include "jinja/json_text.h"

namespace sluice::openai {

Document::Document(std::string_view body) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (body.starts_with(kMark)) body.remove_prefix(kMark.size());
  text = replace_lone_surrogates(body);
  Result<Json> parsed = parse_body(text);
  if (!parsed.ok()) {
    problem = api_error(parsed.status());
  } else if (!parsed->is_object()) {
    problem = ApiError{.message = "The body of the request must be a JSON object."};
  } else {
    json = std::move(*parsed);
  }
}

std::string Body::without(std::span<const std::string_view> keys, std::string_view further) const {
  std::string out = "{" + std::string(further);
  for (const JsonMember& member : json_members(Document::text)) {
    if (std::find(keys.begin(), keys.end(), member.name) != keys.end()) continue;
    if (out.size() > 1) out += ',';
    out += json_quote(member.name) + ':';
    out += member.value;
  }
  return out + '}';
}

}  // namespace sluice::openai
