// Reads the members of a JSON object one by one and checks their types. Keeps the first error.
// finish() also reports members that were not read.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "openai/error.h"
#include "openai/json.h"

namespace sluice::openai {

class Fields {
 public:
  // `text`: the object's text in the request. Both must outlive this. `problem`: an earlier error.
  Fields(const Json& object, std::string_view text, Problem problem = {});

  // Returns the member and marks it as known; null if it is absent or null.
  const Json* take(std::string_view key);
  // The member's text, as the client sent it; "" if it is absent or null.
  [[nodiscard]] std::string_view text(std::string_view key) const {
    return member_text(text_, key);
  }
  // Each leaves *out unchanged if the member is absent or wrong.
  void read(const char* key, bool* out);
  void read(const char* key, std::string* out);
  void read(const char* key, std::initializer_list<const char*> choices, std::string* out);
  void read(const char* key, double least, double most, float* out);
  // 5.0 and 1e2 are whole numbers, too.
  void read(const char* key, int64_t least, int64_t most, int64_t* out);
  void read(const char* key, int32_t least, int32_t most, int32_t* out);

  // Marks members as known without reading them.
  void ignore(std::initializer_list<const char*> keys);
  // Marks members as known but unsupported: an error unless false, 0, "", "none" or empty.
  void refuse(std::initializer_list<const char*> keys);
  // The same for a number that is switched off by `off`.
  void refuse(const char* key, double off);

  // The message begins with the name of the member.
  void fail(const char* key, std::string message);
  // An error inside of the member: "'key': message".
  void fail_inside(const char* key, const Problem& problem);
  // The first error. Members that were not read are errors.
  [[nodiscard]] Problem finish();
  [[nodiscard]] bool ok() const { return !problem_; }
  // The first error, without a look at members that were not read.
  [[nodiscard]] const Problem& first_problem() const { return problem_; }

 private:
  const Json& object_;
  const std::string_view text_;
  std::vector<std::string_view> known_;
  Problem problem_;
};

// The value as a whole number, such as 5, -1, 5.0 or 1e2; nothing for others and beyond 64 bits.
[[nodiscard]] std::optional<int64_t> whole_number(const Json& value);

}  // namespace sluice::openai
