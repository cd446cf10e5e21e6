// Walks over the arguments and applies the table of spellings.def.
#include "cli/spellings.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace sluice::cli {
namespace {

enum class Kind : uint8_t { kCommand, kOtherCommand, kRenamed, kOther, kFulfilled };
struct Spelling {
  Kind kind;
  std::string_view names;
  const char* what;
};
constexpr Spelling kSpellings[] = {
#define SLUICE_SPELLING(kind, names, what) {Kind::kind, names, what},
#include "cli/spellings.def"
};

bool lists(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const size_t end = std::min(names.find(' '), names.size());
    if (names.substr(0, end) == name) return true;
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return false;
}

// Our name, or what to use; null if no row of this kind has the name.
const char* find_in(Kind kind, std::string_view name) {
  for (const Spelling& each : kSpellings) {
    if (each.kind == kind && lists(each.names, name)) return each.what;
  }
  return nullptr;
}

Status other(const std::string& name, const char* answer) {
  return error(Code::kInvalidArgument, "%s: %s", name.c_str(), answer);
}

bool is_whole(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// The arguments after the command's name.
class Translation {
 public:
  explicit Translation(const CLI::App& command) : command_(command) {}

  [[nodiscard]] Result<std::vector<std::string>> apply(std::vector<std::string> arguments) {
    rest_ = std::move(arguments);
    for (; at_ < rest_.size(); ++at_) {
      if (rest_[at_] == "--") {
        out_.insert(out_.end(), rest_.begin() + static_cast<std::ptrdiff_t>(at_), rest_.end());
        break;
      }
      SLUICE_RETURN_IF_ERROR(take(rest_[at_]));
    }
    if (!k_.empty() || !v_.empty()) {
      front_.insert(front_.end(),
                    {"--kv-type", (k_.empty() ? "f16" : k_) + "," + (v_.empty() ? "f16" : v_)});
    }
    front_.insert(front_.end(), out_.begin(), out_.end());
    return std::move(front_);
  }

 private:
  [[nodiscard]] Status take(const std::string& argument) {
    if (argument.size() < 2 || argument[0] != '-') {
      out_.push_back(argument);
      return {};
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = argument.substr(equals + 1);
    if (name == "-ctk" || name == "--cache-type-k") return take_value(name, value, &k_);
    if (name == "-ctv" || name == "--cache-type-v") return take_value(name, value, &v_);
    if (name == "-hf" || name == "-hfr" || name == "--hf-repo") {
      std::string repository;
      SLUICE_RETURN_IF_ERROR(take_value(name, value, &repository));
      front_.insert(front_.end(), {"--model", "hf:" + repository});
      return {};
    }
    if (const CLI::Option* option = find(name)) return keep(*option, name, value);
    if (const char* ours = find_in(Kind::kRenamed, name)) {
      const CLI::Option* option = find(ours);
      if (option != nullptr) return keep(*option, ours, value);
      return error(Code::kInvalidArgument, "%s is not an option of %s", name.c_str(),
                   command_.get_name().c_str());
    }
    if (find_in(Kind::kFulfilled, name) != nullptr) return {};
    if (const char* answer = find_in(Kind::kOther, name)) return other(name, answer);
    if (argument[1] != '-' && name.size() > 2 && find("-" + name) != nullptr) {
      return other(name, ("did you mean -" + name).c_str());
    }
    out_.push_back(argument);
    return {};
  }

  // Passes an option of the command on, with its value. MODEL goes to the front, so that what
  // stands before it is not taken for it.
  [[nodiscard]] Status keep(const CLI::Option& option, std::string name,
                            std::optional<std::string> value) {
    const bool joined = value.has_value();
    const bool takes_value = option.get_items_expected_min() > 0;
    if (takes_value && !joined && at_ + 1 < rest_.size() && rest_[at_ + 1] != "--") {
      value = rest_[++at_];
    }
    const bool draft_tokens = name == "--draft" && value && is_whole(*value);
    if (draft_tokens && find("--draft-max") != nullptr) name = "--draft-max";  // llama.cpp's
    std::vector<std::string>& to = name == "-m" || name == "--model" ? front_ : out_;
    if (!value) {
      to.push_back(name);
    } else if (joined) {
      to.push_back(name + "=" + *value);
    } else {
      to.insert(to.end(), {name, *value});
    }
    return {};
  }

  [[nodiscard]] Status take_value(const std::string& name, const std::optional<std::string>& given,
                                  std::string* out) {
    if (given) {
      *out = *given;
    } else if (at_ + 1 < rest_.size()) {
      *out = rest_[++at_];
    } else {
      return error(Code::kInvalidArgument, "%s needs a value", name.c_str());
    }
    return {};
  }

  [[nodiscard]] const CLI::Option* find(const std::string& name) const {
    return command_.get_option_no_throw(name);
  }

  const CLI::App& command_;
  std::vector<std::string> rest_, front_, out_;
  size_t at_ = 0;
  std::string k_, v_;  // -ctk, -ctv
};

}  // namespace

Result<std::vector<std::string>> translate_spellings(const CLI::App& app,
                                                     const std::vector<std::string>& arguments) {
  std::vector<std::string> out = arguments;
  if (out.empty()) return out;
  if (out[0] == "help") {
    out.erase(out.begin());
    out.emplace_back("--help");
    return out;
  }
  const char* const ours = find_in(Kind::kCommand, out[0]);
  if (ours != nullptr) out[0] = ours;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    if (command->get_name() != out[0]) continue;
    Translation translation(*command);
    Result<std::vector<std::string>> rest = translation.apply({out.begin() + 1, out.end()});
    if (!rest.ok()) return rest.status();
    out.resize(1);
    out.insert(out.end(), rest->begin(), rest->end());
    return out;
  }
  if (const char* answer = find_in(Kind::kOtherCommand, out[0])) {
    return error(Code::kInvalidArgument, "sluice has no %s: %s", out[0].c_str(), answer);
  }
  return out;
}

}  // namespace sluice::cli
