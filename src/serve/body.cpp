// Builds the JSON tree from parser events, so that limits are enforced while it grows.
#include "serve/body.h"

#include <vector>

namespace sluice::serve {
namespace {

class Builder final : public Json::json_sax_t {
 public:
  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(int64_t v) override { return put(v); }
  bool number_unsigned(uint64_t v) override { return put(v); }
  bool number_float(double v, const std::string&) override { return put(v); }
  bool string(std::string& v) override { return put(std::move(v)); }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::value_t::object); }
  bool start_array(size_t) override { return open(Json::value_t::array); }
  bool key(std::string& k) override {
    key_ = std::move(k);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    problem = "The body of the request is not valid JSON.";
    return false;
  }

  Json root;
  const char* problem = nullptr;

 private:
  bool refuse(const char* why) {
    problem = why;
    return false;
  }
  bool put(Json value) {
    if (++n_values_ > kMaxValues) return refuse("The JSON of the request has too many values.");
    Json* at = place();
    if (at == nullptr) return refuse("An object of the request has too many members.");
    *at = std::move(value);
    last_ = at;
    return true;
  }
  bool open(Json::value_t type) {
    if (open_.size() == kMaxDepth) return refuse("The JSON of the request is nested too deeply.");
    if (!put(type)) return false;
    open_.push_back(last_);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  // Only the innermost container grows, so pointers to open containers stay valid. Of duplicate
  // members, the last one counts.
  Json* place() {
    if (open_.empty()) return &root;
    if (auto* list = open_.back()->get_ptr<Json::array_t*>()) return &list->emplace_back();
    auto& object = *open_.back()->get_ptr<Json::object_t*>();
    return object.size() < kMaxMembers ? &object[key_] : nullptr;
  }

  std::vector<Json*> open_;
  std::string key_;
  Json* last_ = nullptr;
  size_t n_values_ = 0;
};

}  // namespace

Result<Json> parse_body(std::string_view text) {
  Builder builder;
  const bool whole =
      Json::sax_parse(text.begin(), text.end(), static_cast<Json::json_sax_t*>(&builder));
  if (whole && builder.problem == nullptr) return std::move(builder.root);
  return error(
      Code::kInvalidArgument, "%s",
      builder.problem != nullptr ? builder.problem : "The body of the request is not valid JSON.");
}

std::string to_text(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sluice::serve
