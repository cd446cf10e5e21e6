// Type and range checks. The messages are worded like those of OpenAI's API.
#include "openai/fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace sluice::openai {
namespace {

// Equal for the spellings of a name, such as max_tokens and maxTokens.
std::string letters_of(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c != '_') out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

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

// "from 0 to 1"; numbers at the ends of float are no limit.
std::string range_text(double least, double most) {
  constexpr double kMax = std::numeric_limits<float>::max();
  if (most < kMax) return " from " + to_text(least) + " to " + to_text(most);
  if (least <= -kMax) return {};
  return least == 0 ? " of 0 or more" : " above 0";
}

}  // namespace

std::optional<int64_t> whole_number(const Json& value) {
  if (const auto* natural = value.get_ptr<const Json::number_unsigned_t*>()) {
    if (*natural > INT64_MAX) return {};
    return static_cast<int64_t>(*natural);
  }
  if (const auto* whole = value.get_ptr<const Json::number_integer_t*>()) return *whole;
  const auto* number = value.get_ptr<const Json::number_float_t*>();
  constexpr double kExact = 1LL << 53;
  if (number == nullptr || !(std::fabs(*number) <= kExact) || *number != std::floor(*number)) {
    return {};
  }
  return static_cast<int64_t>(*number);
}

Fields::Fields(const Json& object, std::string_view text, Problem problem)
    : object_(object), text_(text), problem_(std::move(problem)) {
  if (!problem_ && !object.is_object()) problem_ = {.message = "It must be a JSON object."};
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

void Fields::fail_inside(const char* key, const Problem& problem) {
  if (problem) fail(key, quoted(key) + ": " + problem->message);
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

void Fields::read(const char* key, std::initializer_list<const char*> choices, std::string* out) {
  const Json* value = take(key);
  if (value == nullptr) return;
  std::string names;
  for (const char* choice : choices) {
    if (*value == choice) {
      *out = choice;
      return;
    }
    names += (names.empty() ? "'" : ", '") + std::string(choice) + "'";
  }
  fail(key, quoted(key) + " must be one of " + names + ".");
}

void Fields::read(const char* key, double least, double most, float* out) {
  const Json* value = take(key);
  if (value == nullptr) return;
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number >= least && number <= most)) {
    return fail(key, quoted(key) + " must be a number" + range_text(least, most) + ".");
  }
  *out = static_cast<float>(number);
}

void Fields::read(const char* key, int64_t least, int64_t most, int64_t* out) {
  const Json* value = take(key);
  if (value == nullptr) return;
  const std::optional<int64_t> number = whole_number(*value);
  if (!number || *number < least || *number > most) {
    return fail(key, quoted(key) + " must be a whole number from " + std::to_string(least) +
                         " to " + std::to_string(most) + ".");
  }
  *out = *number;
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
      fail(key, quoted(key) + " is not supported.");
    }
  }
}

void Fields::refuse(const char* key, double off) {
  const Json* value = take(key);
  if (value == nullptr || (value->is_number() && value->get<double>() == off)) return;
  fail(key, quoted(key) + " is not supported.");
}

Problem Fields::finish() {
  if (problem_) return problem_;
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::string name = key.substr(0, 64);
    std::string message = "Unrecognized request argument supplied: " + name;
    const auto near = std::find_if(known_.begin(), known_.end(), [&](std::string_view each) {
      return letters_of(each) == letters_of(name);
    });
    if (near != known_.end()) message += " (use " + std::string(*near) + ")";
    return ApiError{.message = std::move(message), .param = name};
  }
  return {};
}

}  // namespace sluice::openai
