// `sluice check`: tests whether a text matches a grammar or a JSON schema. Needs no model.
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
    return fail(error(Code::kInvalidArgument, "give either --grammar or --json-schema"));
  }
  const auto kind = gbnf ? grammar::Kind::kGbnf : grammar::Kind::kJsonSchema;
  const Result<std::string> source = read_constraint(kind, gbnf ? options.grammar : options.schema);
  if (!source.ok()) return fail(source.status());
  const Result<std::string> text = read_text(options.text_file);
  if (!text.ok()) return fail(text.status());
  const auto compiled = grammar::compile(kind, *source, nullptr, {.compact = options.compact});
  if (!compiled.ok()) return fail(compiled.status());
  const Result<grammar::Verdict> verdict = grammar::check(**compiled, *text);
  if (!verdict.ok()) return fail(verdict.status());
  std::printf("%s\n", name(*verdict));
  return 0;
}

}  // namespace

void add_check(CLI::App& app, int* status) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* sub = add_command(app, kInspect, "check", "Check a text against a grammar or schema",
                              "sluice check --json-schema '{\"type\": \"array\"}' -f answer.json");
  sub->add_option("--grammar", options->grammar,
                  "GBNF grammar, or a file with one; - reads standard input (default: none)");
  sub->add_option("--json-schema", options->schema,
                  "JSON schema, or a file with one; - reads standard input (default: none)");
  sub->add_option("-f,--file", options->text_file, "file with the text; - reads standard input")
      ->required();
  sub->add_flag("--compact", options->compact,
                "accept only JSON without whitespace (default: off)");
  sub->callback([options, status] { *status = check(*options); });
}

}  // namespace sluice::cli
