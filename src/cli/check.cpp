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
  CLI::App* sub = app.add_subcommand("check",
                                     "Check a text against a grammar or schema; print match, "
                                     "prefix (may still become one) or reject");
  sub->add_option("--grammar", options->grammar,
                  "file with a GBNF grammar; - reads standard input");
  sub->add_option("--json-schema", options->schema,
                  "file with a JSON schema; - reads standard input");
  sub->add_option("-f,--file", options->text_file, "file with the text; - reads standard input")
      ->required();
  sub->add_flag("--compact", options->compact,
                "accept only JSON without whitespace (default: off)");
  sub->callback([options, status] { *status = check(*options); });
}

}  // namespace sluice::cli
