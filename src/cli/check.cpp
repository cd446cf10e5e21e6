// `sluice check`: whether a text fits a grammar or a schema, without any model.
#include <cstdio>

#include "cli/cli.h"
#include "grammar/grammar.h"

namespace sluice::cli {
namespace {

struct CheckOptions {
  std::string grammar, schema, text_file;
  bool compact = false;
};

const char* name(grammar::Verdict verdict) {
  switch (verdict) {
    case grammar::Verdict::kMatch:
      return "match";
    case grammar::Verdict::kPrefix:
      return "prefix";
    case grammar::Verdict::kReject:
      break;
  }
  return "reject";
}

int check(const CheckOptions& options) {
  const bool gbnf = !options.grammar.empty();
  if (gbnf == !options.schema.empty()) {
    return fail(error(Code::kInvalidArgument, "give one of --grammar and --json-schema"));
  }
  const Result<std::string> source = read_text(gbnf ? options.grammar : options.schema);
  if (!source.ok()) return fail(source.status());
  const Result<std::string> text = read_text(options.text_file);
  if (!text.ok()) return fail(text.status());
  const auto compiled = grammar::compile(gbnf ? grammar::Kind::kGbnf : grammar::Kind::kJsonSchema,
                                         *source, nullptr, {.compact = options.compact});
  if (!compiled.ok()) return fail(compiled.status());
  const Result<grammar::Verdict> verdict = grammar::check(**compiled, *text);
  if (!verdict.ok()) return fail(verdict.status());
  std::printf("%s\n", name(*verdict));
  return 0;
}

}  // namespace

void add_check(CLI::App& app, int* status) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* sub = app.add_subcommand(
      "check", "Print whether a text is a match, a prefix of one, or to be rejected");
  sub->add_option("--grammar", options->grammar, "a GBNF grammar; - reads standard input");
  sub->add_option("--json-schema", options->schema, "a JSON schema; - reads standard input");
  sub->add_option("-f,--file", options->text_file, "the text; - reads standard input")->required();
  sub->add_flag("--compact", options->compact, "take JSON without whitespace only");
  sub->callback([options, status] { *status = check(*options); });
}

}  // namespace sluice::cli
