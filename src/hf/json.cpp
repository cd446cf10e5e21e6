// Parsing JSON into a tree, and streaming it.
#include "hf/json.h"

#include <limits>

namespace sluice::hf {

namespace {

// Both ways take the parser's events through one interface, so that its code is linked only once.
class Events : public Json::json_sax_t {
 public:
  bool number_unsigned(uint64_t v) final {
    if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return large(v);
    return number_integer(static_cast<int64_t>(v));
  }
  bool binary(Json::binary_t&) final { return false; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) final {
    broken = true;
    return false;
  }

  bool broken = false;  // not JSON, or nested too deeply

 protected:
  ~Events() = default;
  virtual bool large(uint64_t v) = 0;
};

bool parse(std::string_view text, Events* events) {
  return Json::sax_parse(text.begin(), text.end(), static_cast<Json::json_sax_t*>(events));
}

// Builds a tree. Open containers never move: only the innermost one grows.
class Tree final : public Events {
 public:
  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(int64_t v) override { return put(v); }
  bool large(uint64_t v) override { return put(v); }
  bool number_float(double v, const std::string&) override { return put(v); }
  bool string(std::string& v) override { return put(std::move(v)); }
  bool start_object(size_t) override { return open(Json::value_t::object); }
  bool start_array(size_t) override { return open(Json::value_t::array); }
  bool key(std::string& k) override {
    key_ = std::move(k);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  Json root;

 private:
  bool put(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json::value_t type) {
    open_.push_back(place(type));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  Json* place(Json value) {
    Json* at = &root;
    if (!open_.empty()) {
      if (auto* list = open_.back()->get_ptr<Json::array_t*>()) {
        at = &list->emplace_back();
      } else {
        at = &(*open_.back()->get_ptr<Json::object_t*>())[key_];
      }
    }
    *at = std::move(value);
    return at;
  }

  std::vector<Json*> open_;
  std::string key_;
};

// Streams scalars, and keeps track of the path.
class Walker final : public Events {
 public:
  explicit Walker(JsonVisitor* visitor) : visitor_(visitor) {}

  bool null() override { return emit({}); }
  bool boolean(bool v) override { return emit({.kind = JsonScalar::Kind::kBool, .boolean = v}); }
  bool number_integer(int64_t v) override {
    return emit(
        {.kind = JsonScalar::Kind::kInteger, .integer = v, .number = static_cast<double>(v)});
  }
  bool large(uint64_t v) override { return number_float(static_cast<double>(v), {}); }
  bool number_float(double v, const std::string&) override {
    return emit({.kind = JsonScalar::Kind::kFloat, .number = v});
  }
  bool string(std::string& v) override {
    return emit({.kind = JsonScalar::Kind::kString, .text = v});
  }
  bool start_object(size_t) override { return open(-1); }
  bool start_array(size_t) override { return open(0); }
  bool key(std::string& k) override {
    path_.back() = k;
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

 private:
  // Entering a container adds a path component for its members; the document itself has none.
  bool open(int64_t first_index) {
    if (index_.size() >= kMaxJsonDepth) {
      broken = true;
      return false;
    }
    next_index();
    index_.push_back(first_index);
    path_.emplace_back();
    return true;
  }
  bool close() {
    index_.pop_back();
    path_.pop_back();
    return visitor_->end(path_);
  }
  void next_index() {
    if (!index_.empty() && index_.back() >= 0) path_.back() = std::to_string(index_.back()++);
  }
  bool emit(const JsonScalar& value) {
    next_index();
    return visitor_->scalar(path_, value);
  }

  JsonVisitor* visitor_;
  JsonPath path_;
  std::vector<int64_t> index_;  // next index in each enclosing array; -1 for objects
};

Status not_json(const char* file) {
  return error(Code::kBadHeader, "%s is not valid JSON", file);
}

Status too_large(const char* file) {
  return error(Code::kBadHeader, "%s is too large", file);
}

}  // namespace

Result<Json> parse_json(std::string_view text, const char* file) {
  if (text.size() > kMaxJsonDocument) return too_large(file);
  Tree tree;
  if (!parse(text, &tree) || !tree.root.is_object()) return not_json(file);
  return std::move(tree.root);
}

const Json* json_find(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::optional<int64_t> json_int(const Json& object, const char* key) {
  const Json* v = json_find(object, key);
  if (v == nullptr || !v->is_number_integer()) return std::nullopt;
  if (const auto* u = v->get_ptr<const Json::number_unsigned_t*>()) {
    if (*u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(*u);
  }
  return *v->get_ptr<const Json::number_integer_t*>();
}

std::optional<double> json_number(const Json& object, const char* key) {
  const Json* v = json_find(object, key);
  if (v == nullptr || !v->is_number()) return std::nullopt;
  return v->get<double>();
}

std::optional<bool> json_bool(const Json& object, const char* key) {
  const Json* v = json_find(object, key);
  if (v == nullptr || !v->is_boolean()) return std::nullopt;
  return v->get<bool>();
}

std::optional<std::string_view> json_string(const Json& object, const char* key) {
  const Json* v = json_find(object, key);
  if (v == nullptr || !v->is_string()) return std::nullopt;
  return std::string_view(*v->get_ptr<const std::string*>());
}

Result<bool> walk_json(std::string_view text, const char* file, JsonVisitor* visitor) {
  if (text.size() > kMaxJsonStream) return too_large(file);
  Walker walker(visitor);
  const bool whole = parse(text, &walker);
  if (walker.broken) return not_json(file);
  return whole;
}

}  // namespace sluice::hf
