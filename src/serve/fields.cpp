// Type and range checks. The messages are worded like those of OpenAI's API.
#include "serve/fields.h"

#include <algorithm>
#include <cmath>

namespace sluice::serve {
namespace {

bool switched_off(const Json& value) {
  if (const auto* flag = value.get_ptr<const Json::boolean_t*>()) return !*flag;
  if (const auto* text = value.get_ptr<const std::string*>())
    return text->empty() || *text == "none";
  if (value.is_number()) return value.get<double>() == 0;
  return value.empty();
}

std::string quoted(std::string_view key) {
  return "'" + std::string(key.substr(0, 64)) + "'";
}

}  // namespace

Fields::Fields(const Json& object) : object_(object) {
  if (!object.is_object()) problem_ = {.message = "The body of the request must be a JSON object."};
}

const Json* Fields::take(std::string_view key) {
  known_.push_back(key);
  if (!object_.is_object()) return nullptr;
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void Fields::fail(const char* key, std::string message) {
  if (!problem_) problem_ = {.message = std::move(message), .param = key};
}

void Fields::read(const char* key, bool* out) {
  const Json* value = take(key);
  if (value == nullptr) return;
  if (!value->is_boolean()) return fail(key, quoted(key) + " must be true or false.");
  *out = value->get<bool>();
}

void Fields::read(const char* key, std::string* out) {
  const Json* value = take(key);
  if (value == nullptr) return;
  if (!value->is_string()) return fail(key, quoted(key) + " must be a string.");
  *out = *value->get_ptr<const std::string*>();
}

void Fields::read(const char* key, float* out) {
  const Json* value = take(key);
  if (value == nullptr) return;
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(std::fabs(number) <= 3e38)) return fail(key, quoted(key) + " must be a number.");
  *out = static_cast<float>(number);
}

void Fields::read(const char* key, int64_t least, int64_t most, int64_t* out) {
  const Json* value = take(key);
  if (value == nullptr) return;
  const auto* whole = value->get_ptr<const Json::number_integer_t*>();
  const auto* natural = value->get_ptr<const Json::number_unsigned_t*>();
  const bool fits = natural != nullptr ? *natural <= static_cast<uint64_t>(most)
                                       : whole != nullptr && *whole <= most;
  if (!fits || (natural == nullptr ? *whole : static_cast<int64_t>(*natural)) < least) {
    return fail(key, quoted(key) + " must be a whole number from " + std::to_string(least) +
                         " to " + std::to_string(most) + ".");
  }
  *out = natural != nullptr ? static_cast<int64_t>(*natural) : *whole;
}

void Fields::read(const char* key, int32_t least, int32_t most, int32_t* out) {
  int64_t value = *out;
  read(key, int64_t{least}, int64_t{most}, &value);
  *out = static_cast<int32_t>(value);
}

void Fields::ignore(std::initializer_list<const char*> keys) {
  known_.insert(known_.end(), keys.begin(), keys.end());
}

void Fields::refuse(std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const Json* value = take(key);
    if (value != nullptr && !switched_off(*value)) {
      fail(key, quoted(key) + " is not supported by this server.");
    }
  }
}

Problem Fields::finish() {
  if (problem_) return problem_;
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    return ApiError{.message = "Unrecognized request argument supplied: " + key.substr(0, 64)};
  }
  return {};
}

}  // namespace sluice::serve
