// Reads the members of a JSON object one by one and checks their types. Keeps the first error.
// finish() also reports members that were not read.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "serve/request.h"

namespace sluice::serve {

class Fields {
 public:
  // `object` must outlive this.
  explicit Fields(const Json& object);

  // Returns the member and marks it as known; null if it is absent or null.
  const Json* take(std::string_view key);
  // Each leaves *out unchanged if the member is absent or wrong.
  void read(const char* key, bool* out);
  void read(const char* key, std::string* out);
  void read(const char* key, float* out);
  void read(const char* key, int64_t least, int64_t most, int64_t* out);
  void read(const char* key, int32_t least, int32_t most, int32_t* out);

  // Marks members as known without reading them.
  void ignore(std::initializer_list<const char*> keys);
  // Marks members as known but unsupported: an error unless false, 0, "", "none" or empty.
  void refuse(std::initializer_list<const char*> keys);

  void fail(const char* key, std::string message);
  // The first error. Members that were not read are errors.
  [[nodiscard]] Problem finish();
  [[nodiscard]] bool ok() const { return !problem_; }

 private:
  const Json& object_;
  std::vector<std::string_view> known_;
  Problem problem_;
};

}  // namespace sluice::serve
