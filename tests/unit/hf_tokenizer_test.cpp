// tokenizer.json as metadata: every kind is recognized or is an error that names it, damaged files
// do no harm, and real vocabularies, written as tokenizer.json and read back, give the same ids.
#include <algorithm>
#include <filesystem>
#include <random>
#include <unordered_map>

#include "../file_contents.h"
#include "../paths.h"
#include "hf/tokenizer.h"
#include "hf_tiny_model.h"
#include "tokenizer/tokenizer.h"

namespace sluice::hf {

using gguf::Header;
using gguf::parse_header;
using gguf::StringCursor;
using gguf::Value;
namespace {

std::string split_step(const std::string& regex) {
  return R"({"type":"Split","pattern":{"Regex":)" + json_text(regex) +
         R"(},"behavior":"Isolated","invert":false})";
}

TEST(HfTokenizer, TakesTheTemplateOfRequestsWithToolsFromTheList) {
  TinyModel tiny;
  tiny.tokenizer_config = R"({"eos_token":"<|end|>","chat_template":[
      {"name":"tool_use","template":"T"},{"name":"rag","template":"R"},
      {"name":"default","template":"D"}]})";
  auto model = tiny.describe();
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->header.get_string("tokenizer.chat_template"), "D");
  EXPECT_EQ(model->header.get_string("tokenizer.chat_template.tool_use"), "T");
  EXPECT_FALSE(model->header.get_string("tokenizer.chat_template.rag"));

  // A file of its own takes the place of the list.
  tiny.chat_template = "F";
  model = tiny.describe();
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->header.get_string("tokenizer.chat_template"), "F");
  EXPECT_FALSE(model->header.get_string("tokenizer.chat_template.tool_use"));
}

TEST(HfTokenizer, ByteLevel) {
  TinyModel tiny;
  tiny.tokenizer_config = R"({"eos_token":{"content":"<|end|>"},"bos_token":null,
      "add_bos_token":false,"chat_template":"{{ messages }}"})";
  const auto model = tiny.describe();
  ASSERT_TRUE(model.ok()) << model.status().message();
  const Header& h = model->header;
  EXPECT_EQ(h.get_string("tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(h.get_string("tokenizer.ggml.pre"), "qwen2");
  EXPECT_EQ(h.get_u64("tokenizer.ggml.eos_token_id"), 259u);
  EXPECT_EQ(h.find("tokenizer.ggml.bos_token_id"), nullptr);
  EXPECT_EQ(h.get_bool("tokenizer.ggml.add_bos_token"), false);
  EXPECT_EQ(h.get_string("tokenizer.chat_template"), "{{ messages }}");
  EXPECT_EQ(h.find("tokenizer.ggml.tokens")->count, 260u);
  EXPECT_EQ(h.find("tokenizer.ggml.token_type")->number_at(259), 3.0);
  const auto tokenizer = tokenizer::Tokenizer::create(h);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->encode("hell we<|end|>"),
            (std::vector<tokenizer::Token>{257, 'l', 258, 'e', 259}));
  EXPECT_EQ((*tokenizer)->eos(), 259);
}

TEST(HfTokenizer, RecognizesPreTokenizersByTheirRegex) {
  const auto pre = [](const std::string& tokenizer_json) {
    TinyModel tiny;
    tiny.tokenizer = tokenizer_json;
    const auto model = tiny.describe();
    return model.ok() ? std::string(*model->header.get_string("tokenizer.ggml.pre"))
                      : model.status().message();
  };
  std::string llama3 = test::kQwen2Regex;
  llama3.replace(llama3.find("\\p{N}|"), 6, "\\p{N}{1,3}|");
  EXPECT_EQ(pre(byte_level_tokenizer()), "qwen2");
  EXPECT_EQ(pre(byte_level_tokenizer(llama3)), "dbrx");
  std::string whole = byte_level_tokenizer(llama3);
  whole.replace(whole.find("\"byte_fallback\""), 0, "\"ignore_merges\":true,");
  EXPECT_EQ(pre(whole), "llama-bpe");
  std::string gpt2 = byte_level_tokenizer();
  const size_t at = gpt2.find("\"pre_tokenizer\":");
  gpt2.replace(at, gpt2.find("\"model\"") - at,
               R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},)");
  EXPECT_EQ(pre(gpt2), "gpt-2");
  std::string removed = byte_level_tokenizer();
  removed.replace(removed.find("Isolated"), 8, "Removed");
  EXPECT_NE(pre(removed).find("another way"), std::string::npos);
  EXPECT_NE(pre(byte_level_tokenizer("\\w+")).find("\\w+"), std::string::npos);
  const auto steps = [&](const std::vector<std::string>& all) {
    std::string list;
    for (const std::string& step : all) list.append(list.empty() ? "" : ",").append(step);
    std::string json = byte_level_tokenizer();
    const size_t from = json.find("[{\"type\":\"Split\"");
    return pre(json.replace(from, json.find("]}", from) - from, "[" + list));
  };
  const std::string digits = R"({"type":"Digits","individual_digits":true})";
  const std::string bytes = R"({"type":"ByteLevel","use_regex":false})";
  const std::string cjk = split_step("[一-龥ࠀ-一가-퟿]+");
  EXPECT_EQ(steps({digits, R"({"type":"ByteLevel"})"}), "smollm");
  EXPECT_EQ(steps({split_step("[\r\n]"), split_step("\\s?\\p{L}+"), split_step("\\s?\\p{P}+"), cjk,
                   digits, bytes}),
            "deepseek-coder");
  EXPECT_EQ(
      steps({split_step("\\p{N}{1,3}"), split_step("[一-龥぀-ゟ゠-ヿ]+"),
             split_step(R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}])"
                        R"(?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
             bytes}),
      "deepseek-v3");
  EXPECT_NE(steps({cjk, bytes}).find("unknown"), std::string::npos);
  std::string inverted = byte_level_tokenizer();
  inverted.replace(inverted.find("Isolated"), 8, "Removed");
  inverted.replace(inverted.find("\"invert\":false"), 14, "\"invert\":true");
  EXPECT_EQ(pre(inverted), "qwen2");
}

TEST(HfTokenizer, Unigram) {
  TinyModel tiny;
  std::string pieces = R"(["<unk>",0],["<|end|>",0],["\u2581a",-1.5],["b",-2],["ab",-2.5])";
  for (int i = 5; i < 260; i++) pieces += ",[\"<" + std::to_string(i) + ">\",-30]";
  const auto json = [&](const std::string& normalizer) {
    return R"({"added_tokens":[{"id":1,"content":"<|end|>","special":true}],"normalizer":)" +
           normalizer +
           R"(,"pre_tokenizer":{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"always"},)"
           R"("model":{"type":"Unigram","unk_id":0,"vocab":[)" +
           pieces + "]}}";
  };
  tiny.tokenizer_config = R"({"eos_token":"<|end|>"})";
  tiny.tokenizer = json("null");
  const auto model = tiny.describe();
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->header.get_string("tokenizer.ggml.model"), "t5");
  const auto tokenizer = tokenizer::Tokenizer::create(model->header);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  using Ids = std::vector<tokenizer::Token>;
  EXPECT_EQ((*tokenizer)->encode("abab"), (Ids{2, 3, 4}));  // -1.5 - 2 - 2.5: _a b ab
  EXPECT_EQ((*tokenizer)->encode("a<|end|>"), (Ids{2, 1}));

  tiny.tokenizer = json(R"({"type":"Sequence","normalizers":[{"type":"Precompiled",)"
                        R"("precompiled_charsmap":"AAECAwT/"},{"type":"Replace","pattern":)"
                        R"({"Regex":" {2,}"},"content":" "}]})");
  const auto ruled = tiny.describe();
  ASSERT_TRUE(ruled.ok()) << ruled.status().message();
  const Value& rules = *ruled->header.find("tokenizer.ggml.precompiled_charsmap");
  EXPECT_EQ(std::vector<uint8_t>(rules.bytes.begin(), rules.bytes.end()),
            (std::vector<uint8_t>{0, 1, 2, 3, 4, 255}));
  EXPECT_EQ(ruled->header.get_bool("tokenizer.ggml.remove_extra_whitespaces"), true);
  tiny.tokenizer = json(R"({"type":"Precompiled","precompiled_charsmap":"?"})");
  tiny.expect_refused(Code::kBadTokenizer, "base64");
  pieces.replace(pieces.find("-1.5"), 4, "\"x\"");
  tiny.tokenizer = json("null");
  tiny.expect_refused(Code::kBadTokenizer, "score");
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// Token ids of a text, with the directory's tokenizer in its current state.
std::vector<tokenizer::Token> ids_of(TinyModel& tiny, const std::string& text) {
  const auto model = tiny.describe();
  EXPECT_TRUE(model.ok()) << model.status().message();
  const auto tokenizer = tokenizer::Tokenizer::create(model->header);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return (*tokenizer)->encode(text, {.add_special = false});
}

TEST(HfTokenizer, AppliesTheFilesNormalizer) {
  TinyModel tiny;
  const auto ids = [&](const std::string& text) { return ids_of(tiny, text); };
  const std::string own = "\"normalizer\":{\"type\":\"NFC\"}";
  const std::string plain = replaced(tiny.tokenizer, own, "\"normalizer\":null");
  tiny.tokenizer = plain;
  const std::string two = "e\xCC\x81", one = "\xC3\xA9";
  EXPECT_NE(ids(two), ids(one));
  for (const char* nfc :
       {R"({"type":"NFC"})", R"({"type":"Sequence","normalizers":[{"type":"NFC"}]})"}) {
    tiny.tokenizer = replaced(plain, "\"normalizer\":null", "\"normalizer\":" + std::string(nfc));
    EXPECT_EQ(ids(two), ids(one));
    EXPECT_EQ(ids("<|end|>" + two), ids("<|end|>" + one));
  }
  for (const char* other : {"NFKC", "NFD", "Lowercase", "Strip", "StripAccents", "Replace",
                            "Prepend", "BertNormalizer", "Nmt", "Precompiled", "Unheard"}) {
    tiny.tokenizer =
        replaced(plain, "\"normalizer\":null",
                 R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":")" +
                     std::string(other) + "\"}]}");
    tiny.expect_refused(Code::kUnsupportedTokenizer, other);
  }
}

// Metaspace adds its space before the text only ("first"), before every stretch between special
// tokens ("always") or never, and not where a space already is.
TEST(HfTokenizer, AppliesTheFilesMetaspace) {
  using Ids = std::vector<tokenizer::Token>;
  TinyModel tiny;
  std::string vocab = R"("<unk>":0,"<|end|>":1,"\u2581":2,"a":3,"\u2581a":4)";
  for (int i = 0; i < 255; i++) {
    char name[40];
    std::snprintf(name, sizeof name, ",\"<0x%02X>\":%d", i, i + 5);
    vocab += name;
  }
  const auto ids = [&](const std::string& scheme, const char* text) {
    tiny.tokenizer =
        R"({"added_tokens":[{"id":1,"content":"<|end|>","special":true}],"pre_tokenizer":)"
        R"({"type":"Metaspace","replacement":"\u2581","prepend_scheme":")" +
        scheme + R"("},"model":{"type":"BPE","byte_fallback":true,"unk_token":"<unk>","vocab":{)" +
        vocab + R"(},"merges":["\u2581 a"]}})";
    return ids_of(tiny, text);
  };
  EXPECT_EQ(ids("always", "a<|end|>a"), (Ids{4, 1, 4}));
  EXPECT_EQ(ids("first", "a<|end|>a"), (Ids{4, 1, 3}));
  EXPECT_EQ(ids("first", "<|end|>a"), (Ids{1, 3}));
  EXPECT_EQ(ids("never", "a<|end|>a"), (Ids{3, 1, 3}));
  EXPECT_EQ(ids("always", " a<|end|> a"), (Ids{4, 1, 4}));
  EXPECT_EQ(ids("first", "  a"), (Ids{2, 4}));
}

TEST(HfTokenizer, AddedTokensStripSpacesAsConfigured) {
  using Ids = std::vector<tokenizer::Token>;
  TinyModel tiny;
  const std::string plain = tiny.tokenizer;
  const auto ids = [&](const std::string& text) { return ids_of(tiny, text); };
  const std::string text = "h \n\xC2\xA0<|end|> \t\xE3\x80\x80h";
  EXPECT_GT(ids(text).size(), 6u);
  tiny.tokenizer =
      replaced(plain, R"("content":"<|end|>")", R"("content":"<|end|>","lstrip":true)");
  EXPECT_EQ(ids("h \n\xC2\xA0<|end|>h"), (Ids{'h', 259, 'h'}));
  tiny.tokenizer =
      replaced(plain, R"("content":"<|end|>")", R"("content":"<|end|>","rstrip":true)");
  EXPECT_EQ(ids("h<|end|> \t\xE3\x80\x80h"), (Ids{'h', 259, 'h'}));
  tiny.tokenizer =
      replaced(plain, R"("content":"<|end|>")", R"("content":"<|end|>","single_word":true)");
  tiny.expect_refused(Code::kUnsupportedTokenizer, "single_word");
  tiny.tokenizer = replaced(
      replaced(plain, R"("content":"<|end|>")", R"("content":"<|end|>","normalized":true)"), "{",
      R"({"normalizer":{"type":"NFC"},)");
  tiny.expect_refused(Code::kUnsupportedTokenizer, "normalized");
}

TEST(HfTokenizer, BosComesFromTheTemplate) {
  TinyModel tiny;
  tiny.tokenizer_config = R"({"bos_token":"<|end|>"})";
  const auto adds = [&](const char* single) {
    tiny.tokenizer = byte_level_tokenizer(
        test::kQwen2Regex, std::string(R"("post_processor":{"type":"Sequence","processors":[
            {"type":"ByteLevel"},{"type":"TemplateProcessing","single":)") +
                               single + "}]},");
    const auto model = tiny.describe();
    EXPECT_TRUE(model.ok()) << model.status().message();
    return model.ok() && *model->header.get_bool("tokenizer.ggml.add_bos_token");
  };
  const char* kBos = R"({"SpecialToken":{"id":"<|end|>","type_id":0}})";
  const char* kText = R"({"Sequence":{"id":"A","type_id":0}})";
  EXPECT_TRUE(adds(("[" + std::string(kBos) + "," + kText + "]").c_str()));
  EXPECT_FALSE(adds(("[" + std::string(kText) + "]").c_str()));
  EXPECT_FALSE(adds(("[" + std::string(kText) + "," + kBos + "]").c_str()));
  tiny.tokenizer_config = R"({"bos_token":"<|end|>","add_bos_token":false})";
  EXPECT_FALSE(adds(("[" + std::string(kBos) + "," + kText + "]").c_str()));
}

// tokenizer_config.json names the unknown token too; a file written from it must not.
TEST(HfTokenizer, WritesTheUnknownTokenOnce) {
  TinyModel tiny;
  tiny.tokenizer = R"({"added_tokens":[{"id":1,"content":"[UNK]","special":true}],
      "normalizer":{"type":"BertNormalizer","lowercase":true},"pre_tokenizer":{"type":"BertPreTokenizer"},
      "model":{"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##",
               "max_input_chars_per_word":100,"vocab":{"a":0,"[UNK]":1,"##b":2}}})";
  for (const char* settings : {"{}", R"({"unk_token":"[UNK]"})", R"({"unk_token":"a"})"}) {
    tiny.tokenizer_config = settings;
    const auto model = tiny.describe();
    ASSERT_TRUE(model.ok()) << model.status().message();
    const auto& all = model->header.metadata;
    EXPECT_EQ(
        std::count_if(all.begin(), all.end(),
                      [](const auto& one) { return one.key == "tokenizer.ggml.unknown_token_id"; }),
        1);
    EXPECT_EQ(model->header.get_u64("tokenizer.ggml.unknown_token_id"), 1u);
  }
}

TEST(HfTokenizer, ErrorsNameWhatIsUnsupported) {
  const auto refused = [](const std::string& from, const std::string& to, Code code,
                          const char* word) {
    TinyModel tiny;
    const size_t at = tiny.tokenizer.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    tiny.tokenizer.replace(at, from.size(), to);
    tiny.expect_refused(code, word);
  };
  refused("\"he\":256", "\"he\":260", Code::kBadTokenizer, "260");
  refused("\"he\":256", "\"he\":-1", Code::kBadTokenizer, "id");
  refused("\"he\":256", "\"he\":257", Code::kBadTokenizer, "257");
  refused("\"he\":256", "\"hel\":256", Code::kBadTokenizer, "twice");
  refused("\"h e\"", "\"h x\"", Code::kBadTokenizer, "\"x\"");
  refused("\"h e\"", "\"he\"", Code::kBadTokenizer, "pair");
  refused("\"h e\"", "5", Code::kBadTokenizer, "merge");
  refused("[\"he\",\"l\"]", "[\"he\"]", Code::kBadTokenizer, "pair");
  refused("[\"he\",\"l\"]", "[\"he\",\"l\",\"x\"]", Code::kBadTokenizer, "pair");
  refused("\"BPE\"", "\"Unigram\"", Code::kUnsupportedTokenizer, "Unigram");
  refused("\"BPE\"", "\"WordPiece\"", Code::kUnsupportedTokenizer, "NFC");
  refused("\"type\":\"ByteLevel\",", "", Code::kUnsupportedTokenizer, "byte fallback");
  refused("\"merges\":[", "\"merges\":[}", Code::kBadHeader, "tokenizer.json");
  TinyModel absent;
  absent.tokenizer = "";
  absent.expect_refused(Code::kBadHeader, "tokenizer.json");
  TinyModel settings;
  settings.tokenizer_config = "{";
  settings.expect_refused(Code::kBadHeader, "tokenizer_config.json");
}

TEST(HfTokenizer, RandomDamageNeverCrashes) {
  const TinyModel whole;
  std::mt19937 rng(3);
  int refused = 0;
  for (int i = 0; i < 1500; i++) {
    TinyModel tiny = whole;
    std::string& text = i % 3 == 0 ? tiny.config : i % 3 == 1 ? tiny.tokenizer : tiny.files[0];
    const char kBytes[] = "{}[]\",:0019-e.tn\\\x80";
    for (auto k = rng() % 3 + 1; k > 0; k--) text[rng() % text.size()] = kBytes[rng() % 18];
    if (rng() % 4 == 0) text.resize(rng() % text.size());
    const auto model = tiny.describe();
    if (model.ok()) {
      (void)tokenizer::Tokenizer::create(model->header);
    } else {
      EXPECT_NE(model.status().code(), Code::kInternal);
      refused++;
    }
  }
  EXPECT_GT(refused, 0);
}

// --- real vocabularies: a GGUF's, written as tokenizer.json and read back, gives the same ids

std::string read_text(const std::filesystem::path& path) {
  return sluice::test::file_contents(path);
}

std::vector<std::string> strings_of(const Header& h, const char* key) {
  std::vector<std::string> out;
  const Value* value = h.find(key);
  if (value == nullptr) return out;
  StringCursor cursor(*value);
  std::string_view text;
  while (cursor.next(&text)) out.emplace_back(text);
  return out;
}

// SentencePiece's merges as converters write them: every split of a token in two, by score.
std::vector<std::string> merges_by_score(const std::vector<std::string>& tokens,
                                         const Value& scores) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t i = 0; i < tokens.size(); i++) ids.emplace(tokens[i], i);
  struct Merge {
    double score;
    size_t left, right;
  };
  std::vector<Merge> merges;
  for (size_t i = 0; i < tokens.size(); i++) {
    const std::string_view t = tokens[i];
    for (size_t cut = 1; cut < t.size(); cut++) {
      const auto left = ids.find(t.substr(0, cut));
      const auto right = ids.find(t.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      merges.push_back({scores.number_at(i), left->second, right->second});
    }
  }
  std::stable_sort(merges.begin(), merges.end(),
                   [](const Merge& a, const Merge& b) { return a.score > b.score; });
  std::vector<std::string> out;
  for (const Merge& m : merges) out.push_back(tokens[m.left] + ' ' + tokens[m.right]);
  return out;
}

// `steps`: a sequence of pre-tokenizers in JSON; none for SentencePiece.
std::string tokenizer_json_of(const Header& h, const std::string& steps) {
  const auto tokens = strings_of(h, "tokenizer.ggml.tokens");
  const Value& types = *h.find("tokenizer.ggml.token_type");
  const bool sentencepiece = h.get_string("tokenizer.ggml.model") == "llama";
  const auto merges = sentencepiece ? merges_by_score(tokens, *h.find("tokenizer.ggml.scores"))
                                    : strings_of(h, "tokenizer.ggml.merges");
  std::string added;
  std::string vocab;
  for (size_t i = 0; i < tokens.size(); i++) {
    const double type = types.number_at(i);
    if (type == 5) continue;
    if (type == 3 || type == 4) {
      added.append(added.empty() ? "" : ",").append("{\"id\":").append(std::to_string(i));
      added.append(",\"content\":").append(json_text(tokens[i])).append(",\"special\":");
      added.append(type == 3 ? "true}" : "false}");
    } else {
      vocab.append(vocab.empty() ? "" : ",").append(json_text(tokens[i]));
      vocab.append(":").append(std::to_string(i));
    }
  }
  std::string list;
  for (const std::string& m : merges) list.append(list.empty() ? "" : ",").append(json_text(m));
  std::string pre = "null";
  if (!sentencepiece) {
    pre = R"({"type":"Sequence","pretokenizers":[)" + steps + "]}";
  }
  return R"({"added_tokens":[)" + added + R"(],"normalizer":)" +
         (sentencepiece ? R"({"type":"Prepend","prepend":"\u2581"})" : "null") +
         ",\"pre_tokenizer\":" + pre + R"(,"model":{"type":"BPE","unk_token":"<unk>",)" +
         (sentencepiece ? R"("byte_fallback":true)" : R"("ignore_merges":true)") + ",\"vocab\":{" +
         vocab + "},\"merges\":[" + list + "]}}";
}

void expect_same_ids(const char* name, const std::string& steps) {
  const std::filesystem::path dir =
      std::filesystem::path(sluice::test::shared_dir()) / "fixtures/tokenizer";
  if (!std::filesystem::exists(dir)) GTEST_SKIP() << "no fixtures";
  const std::string file = read_text(dir / (std::string("ggml-vocab-") + name + ".gguf"));
  Header h;
  const auto progress = parse_header(as_bytes(file), file.size(), &h);
  ASSERT_TRUE(progress.ok() && progress->done);
  const size_t n = h.find("tokenizer.ggml.tokens")->count;
  TinyModel tiny;
  tiny.tokenizer = tokenizer_json_of(h, steps);
  tiny.config = tiny_config("llama");
  tiny.config.replace(tiny.config.find("260"), 3, std::to_string(n));
  const auto model = tiny.describe();
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto theirs = tokenizer::Tokenizer::create(h);
  const auto ours = tokenizer::Tokenizer::create(model->header);
  ASSERT_TRUE(theirs.ok() && ours.ok()) << ours.status().message();
  const std::string input = read_text(dir / (std::string("ggml-vocab-") + name + ".gguf.inp"));
  size_t at = 0;
  int texts = 0;
  const tokenizer::EncodeOptions options{.add_special = false, .parse_special = false};
  while (at < input.size()) {
    size_t end = input.find("\n__ggml_vocab_test__\n", at);
    if (end == std::string::npos) end = input.size();
    const std::string text = input.substr(at, end - at);
    EXPECT_EQ((*ours)->encode(text, options), (*theirs)->encode(text, options)) << text;
    at = end + 21;
    texts++;
  }
  EXPECT_GT(texts, 20);
}

constexpr const char* kBytes = R"(,{"type":"ByteLevel","use_regex":false})";

TEST(HfTokenizer, QwenVocabularyFromTokenizerJson) {
  expect_same_ids("qwen2", split_step(test::kQwen2Regex) + kBytes);
}

TEST(HfTokenizer, Llama3VocabularyFromTokenizerJson) {
  std::string llama3 = test::kQwen2Regex;
  llama3.replace(llama3.find("\\p{N}|"), 6, "\\p{N}{1,3}|");
  expect_same_ids("llama-bpe", split_step(llama3) + kBytes);
}

TEST(HfTokenizer, Gpt2VocabularyFromTokenizerJson) {
  expect_same_ids("gpt-2", R"({"type":"ByteLevel","add_prefix_space":false})");
}

TEST(HfTokenizer, FalconVocabularyFromTokenizerJson) {
  expect_same_ids("falcon", R"({"type":"Punctuation","behavior":"Contiguous"},)"
                            R"({"type":"ByteLevel","use_regex":true},)"
                            R"({"type":"Digits","individual_digits":false},)" +
                                split_step("[0-9][0-9][0-9]"));
}

TEST(HfTokenizer, SentencePieceVocabularyFromTokenizerJson) {
  expect_same_ids("llama-spm", "");
}

}  // namespace
}  // namespace sluice::hf
