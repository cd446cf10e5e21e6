// The members of an object, taken one by one with the type that each must have. The first thing
// that is wrong is kept; so is what nobody took, for the end.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "serve/request.h"

namespace sluice::serve {

class Fields {
 public:
  // `object` outlives this.
  explicit Fields(const Json& object);

  // The member; null where it is absent or null. From here on it is known.
  const Json* take(std::string_view key);
  // Each leaves *out as it is where the member is absent, or wrong.
  void read(const char* key, bool* out);
  void read(const char* key, std::string* out);
  void read(const char* key, float* out);
  void read(const char* key, int64_t least, int64_t most, int64_t* out);
  void read(const char* key, int32_t least, int32_t most, int32_t* out);

  // Known, and nothing to us.
  void ignore(std::initializer_list<const char*> keys);
  // Known, and refused unless it is switched off: false, 0, "" or "none", an empty list.
  void refuse(std::initializer_list<const char*> keys);

  void fail(const char* key, std::string message);
  // What is wrong; members that nobody took are.
  [[nodiscard]] Problem finish();
  [[nodiscard]] bool ok() const { return !problem_; }

 private:
  const Json& object_;
  std::vector<std::string_view> known_;
  Problem problem_;
};

}  // namespace sluice::serve
