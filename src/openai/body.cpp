#include "openai/body.h"

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

}  // namespace sluice::openai
