// Cost of a grammar: compiling a schema, a token mask at each position of a text, and a step. The
// same program runs natively and in a browser; grammar.mjs writes its input and reads its output.
//   grammar_bench VOCABULARY CASES ROUNDS
// VOCABULARY holds the length of each token as a 16-bit little-endian number and then its bytes.
// Tokens without bytes are control tokens; the last token ends the text. CASES has two lines per
// case: a schema, and the token ids of a text that matches it. Prints one line of JSON per case:
// microseconds of each compilation, mask and step, in text order, for all rounds. Every round
// starts with new matcher states.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "grammar/matcher.h"

namespace sluice::grammar {
namespace {

std::string read(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Words final : public TokenSource {
 public:
  explicit Words(const std::string& file) {
    for (size_t at = 0; at + 2 <= file.size();) {
      const size_t size =
          static_cast<uint8_t>(file[at]) | size_t{static_cast<uint8_t>(file[at + 1])} << 8;
      texts_.push_back(file.substr(at + 2, size));
      at += 2 + size;
    }
  }
  [[nodiscard]] int32_t n_tokens() const override { return static_cast<int32_t>(texts_.size()); }
  [[nodiscard]] std::string bytes(Token t) const override { return texts_[static_cast<size_t>(t)]; }
  [[nodiscard]] std::string_view name(Token t) const override {
    return texts_[static_cast<size_t>(t)];
  }
  [[nodiscard]] bool ends(Token t) const override { return t + 1 == n_tokens(); }

 private:
  std::vector<std::string> texts_;
};

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

void print(const char* name, const std::vector<double>& times) {
  std::printf("\"%s\": [", name);
  for (size_t i = 0; i < times.size(); ++i) std::printf(i == 0 ? "%.2f" : ",%.2f", times[i]);
  std::printf("]");
}

int fail(const Status& status) {
  std::fprintf(stderr, "grammar_bench: %s\n", status.message().c_str());
  return 1;
}

int measure(const std::string& schema, const std::vector<Token>& text, const Vocabulary& vocabulary,
            int rounds) {
  std::vector<double> compiled, masks, steps;
  for (int round = 0; round < rounds; ++round) {
    auto start = Clock::now();
    const auto grammar = compile(Kind::kJsonSchema, schema, &vocabulary);
    compiled.push_back(since(start));
    if (!grammar.ok()) return fail(grammar.status());
    const auto matcher = Matcher::create(*grammar, vocabulary);
    if (!matcher.ok()) return fail(matcher.status());
    uint64_t allowed = 1;  // uses every mask, so none is optimized away
    for (const Token token : text) {
      start = Clock::now();
      const std::span<const uint64_t> mask = (*matcher)->mask();
      masks.push_back(since(start));
      allowed &= mask[static_cast<size_t>(token) / 64] >> (token % 64);
      start = Clock::now();
      const bool taken = (*matcher)->advance(token);
      steps.push_back(since(start));
      if (!taken || allowed == 0) {
        std::fprintf(stderr, "grammar_bench: token %d is refused\n", token);
        return 1;
      }
    }
    if (!(*matcher)->can_end()) {
      std::fprintf(stderr, "grammar_bench: the text ends before the schema is satisfied\n");
      return 1;
    }
  }
  std::printf("{");
  print("compile", compiled);
  std::printf(", ");
  print("mask", masks);
  std::printf(", ");
  print("step", steps);
  std::printf("}\n");
  return 0;
}

int run(const char* words_file, const char* cases_file, int rounds) {
  const Words words(read(words_file));
  const auto vocabulary = Vocabulary::create(words);
  if (!vocabulary.ok()) return fail(vocabulary.status());
  std::istringstream cases(read(cases_file));
  for (std::string schema, ids; std::getline(cases, schema) && std::getline(cases, ids);) {
    std::vector<Token> text;
    std::istringstream list(ids);
    for (Token id = 0; list >> id;) text.push_back(id);
    if (measure(schema, text, **vocabulary, rounds) != 0) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace sluice::grammar

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return sluice::grammar::run(argv[1], argv[2], std::atoi(argv[3]));
}
