// Help by groups of commands, and CLI11's errors in plain sentences.
#include "cli/usage.h"

#include <algorithm>
#include <cstdio>

#include "cli/nearest.h"

namespace sluice::cli {
namespace {

constexpr auto kWrong = Code::kInvalidArgument;

// PROMPT, or the longest name such as --prompt.
std::string name_of(const CLI::Option& option) {
  const std::string positional = option.get_name(true);
  return positional.empty() ? option.get_name() : positional;
}

Status unknown_command(const std::string& given, const std::vector<std::string>& names) {
  const std::string first = given.substr(0, 64);
  if (first.starts_with('-')) {
    return error(
        kWrong, "the command comes before %s, such as sluice run; sluice --help lists the commands",
        first.c_str());
  }
  const std::string lower = CLI::detail::to_lower(first);
  const bool model = lower.ends_with(".gguf") || lower.ends_with(".qsf") ||
                     lower.starts_with("hf:") || lower.starts_with("http");
  if (model) {
    return error(kWrong, "\"%s\" is a model: the command comes before it, as in sluice run %s",
                 first.c_str(), first.c_str());
  }
  return error(kWrong, "\"%s\" is not a command%s; sluice --help lists the commands", first.c_str(),
               did_you_mean(first, names).c_str());
}

// Names an option that the command does not have. Its value may have been taken for an argument, so
// this comes before every other problem. Ok if there is none.
Status unknown_option(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  for (const std::string& word : command.remaining()) {
    if (word == "--") break;
    const std::string name = word.substr(0, word.find('='));
    if (name.size() < 2 || name[0] != '-') continue;
    return error(kWrong, "%.64s is not an option of %s%s; sluice %s --help lists them",
                 name.c_str(), command.get_name().c_str(), did_you_mean(name, names).c_str(),
                 command.get_name().c_str());
  }
  return {};
}

Status extra_argument(const CLI::App& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> left = command.remaining();
  if (!left.empty() && left[0] == "--") left.erase(left.begin());
  const std::string word = (left.empty() ? arguments.back() : left[0]).substr(0, 64);
  const bool prompt = command.get_option_no_throw("PROMPT") != nullptr;
  return error(kWrong, "\"%s\" is one argument too many%s; sluice %s --help shows the usage",
               word.c_str(), prompt ? ": put a prompt of several words in quotes" : "",
               command.get_name().c_str());
}

Status missing(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_required() || option->count() > 0) continue;
    return error(kWrong, "%s is missing; sluice %s --help shows the usage",
                 name_of(*option).c_str(), command.get_name().c_str());
  }
  return error(kWrong, "an argument is missing; sluice %s --help shows the usage",
               command.get_name().c_str());
}

// CLI11 reports the option's name before a colon.
Status wrong_count(const CLI::App& command, const std::string& message) {
  const std::string given = message.substr(0, message.find(':'));
  const CLI::Option* const option = command.get_option_no_throw(given);
  const std::string name = option == nullptr ? given : name_of(*option);
  const bool twice = option != nullptr && option->count() > 1;
  return error(kWrong, twice ? "%s is given twice" : "%s needs a value", name.c_str());
}

// "--prompt excludes PROMPT"
Status wrong_pair(const std::string& message) {
  for (const auto& [verb, sentence] :
       {std::pair{" excludes ", "give either %s or %s, not both"}, {" requires ", "%s needs %s"}}) {
    const size_t at = message.find(verb);
    if (at == std::string::npos) continue;
    return error(kWrong, sentence, message.substr(0, at).c_str(),
                 message.substr(at + std::string(verb).size()).c_str());
  }
  return error(kWrong, "%s", message.c_str());
}

}  // namespace

std::string main_help(const CLI::App& app) {
  std::string out = "Usage: sluice COMMAND [MODEL] [OPTIONS]\n" + app.get_description() + "\n";
  std::vector<std::string> groups;
  const auto commands = app.get_subcommands(nullptr);
  for (const CLI::App* command : commands) {
    const std::string& group = command->get_group();
    if (std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  for (const std::string& group : groups) {
    std::string label = group;
    for (const CLI::App* command : commands) {
      if (command->get_group() != group) continue;
      char line[160];
      std::snprintf(line, sizeof line, "%-9s %-11s %s\n", label.c_str(),
                    command->get_name().c_str(), command->get_description().c_str());
      out += line;
      label.clear();
    }
  }
  return out +
         "\nMODEL: GGUF or QSF file, Hugging Face directory, URL of one, or hf:OWNER/REPO\n"
         "sluice COMMAND --help has the options and an example; sluice --version\n";
}

Status usage_error(const CLI::App& app, const std::vector<std::string>& arguments,
                   const CLI::ParseError& problem) {
  const CLI::App* command = nullptr;
  std::vector<std::string> names;
  for (const CLI::App* each : app.get_subcommands(nullptr)) {
    names.push_back(each->get_name());
    if (each->get_name() == arguments[0]) command = each;
  }
  if (command == nullptr) return unknown_command(arguments[0], names);
  SLUICE_RETURN_IF_ERROR(unknown_option(*command));
  switch (static_cast<CLI::ExitCodes>(problem.get_exit_code())) {
    case CLI::ExitCodes::ExtrasError:
      return extra_argument(*command, arguments);
    case CLI::ExitCodes::RequiredError:
      return missing(*command);
    case CLI::ExitCodes::ArgumentMismatch:
      return wrong_count(*command, problem.what());
    case CLI::ExitCodes::ExcludesError:
    case CLI::ExitCodes::RequiresError:
      return wrong_pair(problem.what());
    default:
      return error(kWrong, "%s", problem.what());
  }
}

}  // namespace sluice::cli
