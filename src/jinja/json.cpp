// Reads JSON with a SAX parser, without an intermediate tree.
#include "jinja/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sluice::jinja {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxJsonDepth = 200;

bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

class Reader final : public nlohmann::json_sax<Json> {
 public:
  Reader(Interpreter& in, const Program& program, bool mark)
      : in_(in), program_(program), mark_(mark) {}

  bool null() override { return add(none()); }
  bool boolean(bool value) override { return add(Value(value)); }
  bool number_integer(int64_t value) override { return add(Value(value)); }
  bool number_unsigned(uint64_t value) override {
    if (value > INT64_MAX) return refuse("has an integer outside 64 bits");
    return add(Value(static_cast<int64_t>(value)));
  }
  bool number_float(double value, const std::string& digits) override {
    if (digits.find_first_of(".eE") == std::string::npos) {
      return refuse("has an integer outside 64 bits");
    }
    return add(Value(value));
  }
  bool string(std::string& text) override {
    const bool role = !open_.empty() && open_.back().name == "role";
    return add(in_.text(Text(text, is_content(text, role))));
  }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Value(in_.make<Dict>())); }
  bool start_array(size_t) override { return open(in_.sequence({})); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    open_.back().name = name;
    open_.back().key = in_.text(Text(name, is_content(name, false)));
    return in_.ok();
  }
  bool parse_error(size_t, const std::string&, const Json::exception&) override {
    return refuse("is not JSON");
  }

  Value out;
  const char* problem = "";

 private:
  struct Open {
    Value container;
    Value key;
    std::string name;  // name of the current member; inside an array, the array's name
  };

  [[nodiscard]] bool is_content(const std::string& text, bool role) const {
    return mark_ && !(is_word(text) && (role || program_.known.count(text) > 0));
  }
  bool refuse(const char* why) {
    if (*problem == '\0') problem = why;
    return false;
  }
  bool add(Value value) {
    if (!in_.spend(16)) return false;
    if (open_.empty()) {
      out = value;
    } else if (open_.back().container.is(Kind::kDict)) {
      in_.put(open_.back().container.dict, open_.back().key, value);
    } else {
      open_.back().container.sequence->items.push_back(value);
    }
    return in_.ok();
  }
  bool open(Value container) {
    if (open_.size() == kMaxJsonDepth) return refuse("is nested too deeply");
    if (!add(container)) return false;
    const std::string name =
        !open_.empty() && container.is(Kind::kSequence) ? open_.back().name : "";
    open_.push_back({container, {}, name});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Interpreter& in_;
  const Program& program_;
  bool mark_;
  std::vector<Open> open_;
};

}  // namespace

Result<Value> read_json(Interpreter& in, const Program& program, std::string_view json,
                        const char* what, bool mark) {
  Reader reader(in, program, mark);
  const bool read = Json::sax_parse(json, &reader);
  if (!in.ok()) return in.failure();
  if (!read) return error(Code::kInvalidArgument, "%s %s", what, reader.problem);
  return reader.out;
}

}  // namespace sluice::jinja
