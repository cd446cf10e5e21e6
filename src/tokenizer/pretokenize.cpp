// The pre-tokenizers by name, small scanners that only they use, and the loop that applies nested
// scanners. Names and expressions are those of llama.cpp, whose converter writes the names.
#include "tokenizer/pretokenize.h"

#include <algorithm>
#include <iterator>

#include "tokenizer/scanners.h"

namespace sluice::tokenizer {

namespace {

// The letters with case that DeepSeek's first tokenizer lists.
constexpr CodePoints kDeepseekLetters[] = {
    {0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},
    {0xD8, 0xF6},       {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},
    {0x295, 0x2AF},     {0x370, 0x373},     {0x376, 0x377},     {0x37B, 0x37D},
    {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},     {0x38C, 0x38C},
    {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},     {0x48A, 0x52F},
    {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},
    {0x1C90, 0x1CBA},   {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},
    {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},   {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},
    {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},   {0x1F5B, 0x1F5B},
    {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},
    {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},
    {0x1FD6, 0x1FDB},   {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},
    {0x2102, 0x2102},   {0x2107, 0x2107},   {0x210A, 0x2113},   {0x2115, 0x2115},
    {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},   {0x2128, 0x2128},
    {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},
    {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2184},   {0x2C00, 0x2C7B},
    {0x2C7E, 0x2CE4},   {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF3},   {0xA640, 0xA66D},
    {0xA680, 0xA69B},   {0xA722, 0xA76F},   {0xA771, 0xA787},   {0xA78B, 0xA78E},
    {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},   {0xFF21, 0xFF3A},
    {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB},
    {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};

bool is_deepseek_letter(const Char& c) {
  const auto* range =
      std::lower_bound(std::begin(kDeepseekLetters), std::end(kDeepseekLetters), c.cp,
                       [](const CodePoints& r, uint32_t cp) { return r.last < cp; });
  return range != std::end(kDeepseekLetters) && range->first <= c.cp;
}

bool in(const Char& c, uint32_t first, uint32_t last) {
  return c.cp >= first && c.cp <= last;
}

bool is_deepseek_punctuation(const Char& c) {
  if (c.is_space()) return false;
  return in(c, '!', '/') || in(c, ':', '~') || in(c, 0xFF01, 0xFF0F) || in(c, 0xFF1A, 0xFF5E) ||
         in(c, 0x2018, 0x201F) || in(c, 0x3001, 0x3002);
}

// A run with an optional \s before it.
template <typename Predicate>
Piece scan_spaced_run(std::string_view text, size_t pos, Predicate&& holds) {
  const Char c = char_at(text, pos);
  const size_t next = pos + c.bytes;
  if (!c.is_space() && !holds(c)) return {next, false};
  const size_t end = run_end(text, next, holds);
  return {end, end > next || holds(c)};
}

Piece scan_newline(std::string_view text, size_t pos) {
  const Char c = char_at(text, pos);
  return {pos + c.bytes, c.is_newline()};
}

Piece scan_deepseek_letters(std::string_view text, size_t pos) {
  return scan_spaced_run(text, pos, is_deepseek_letter);
}

Piece scan_deepseek_punctuation(std::string_view text, size_t pos) {
  return scan_spaced_run(text, pos, is_deepseek_punctuation);
}

Piece scan_spaced_letters(std::string_view text, size_t pos) {
  return scan_spaced_run(text, pos, [](const Char& c) { return c.is_letter(); });
}

Piece scan_spaced_punctuation(std::string_view text, size_t pos) {
  return scan_spaced_run(text, pos, [](const Char& c) { return c.cls == CharClass::kPunctuation; });
}

// \s+$
Piece scan_trailing_space(std::string_view text, size_t pos) {
  const Piece piece = scan_run(text, pos, [](const Char& c) { return c.is_space(); });
  return {piece.end, piece.matched && piece.end == text.size()};
}

// DeepSeek's "CJK" range, which starts at U+0800.
Piece scan_deepseek_cjk(std::string_view text, size_t pos) {
  return scan_run(text, pos, [](const Char& c) {
    return (in(c, 0x0800, 0x9FA5) && !c.is_space()) || in(c, 0xAC00, 0xD7FF);
  });
}

Piece scan_chinese_japanese(std::string_view text, size_t pos) {
  return scan_run(text, pos,
                  [](const Char& c) { return in(c, 0x4E00, 0x9FA5) || in(c, 0x3040, 0x30FF); });
}

Piece scan_number(std::string_view text, size_t pos) {
  const Char c = char_at(text, pos);
  return {pos + c.bytes, c.is_number()};
}

Piece scan_numbers(std::string_view text, size_t pos) {
  return scan_run(text, pos, [](const Char& c) { return c.is_number(); });
}

// \p{N}{1,3}
Piece scan_three_numbers(std::string_view text, size_t pos) {
  int left = 3;
  return scan_run(text, pos, [&](const Char& c) { return c.is_number() && left-- > 0; });
}

// [0-9][0-9][0-9]
Piece scan_three_digits(std::string_view text, size_t pos) {
  size_t end = pos;
  while (end < text.size() && end < pos + 3 && text[end] >= '0' && text[end] <= '9') ++end;
  if (end == pos + 3) return {end};
  return {end > pos ? end : pos + char_at(text, pos).bytes, false};
}

bool is_default_punctuation(const Char& c) {
  return c.cls == CharClass::kPunctuation ||
         (c.cp < 0x80 && c.cp != '`' && c.cls == CharClass::kSymbol);
}

// [\p{P}\$\+<=>\^~\|]+
Piece scan_default_punctuation(std::string_view text, size_t pos) {
  return scan_run(text, pos, is_default_punctuation);
}

// The same with the backtick.
Piece scan_falcon_punctuation(std::string_view text, size_t pos) {
  return scan_run(text, pos,
                  [](const Char& c) { return is_default_punctuation(c) || c.cp == '`'; });
}

//  ?[^(\s|.,!?...)]+ of Bloom and the Nordic models.
Piece scan_bloom(std::string_view text, size_t pos) {
  const auto holds = [](const Char& c) {
    if (c.is_space()) return false;
    for (const uint32_t stop : {0x28u, 0x7Cu, 0x2Eu, 0x2Cu, 0x21u, 0x3Fu, 0x2026u, 0x3002u, 0xFF0Cu,
                                0x3001u, 0x0964u, 0x06D4u, 0x060Cu, 0x29u}) {
      if (c.cp == stop) return false;
    }
    return true;
  };
  const size_t start = text[pos] == ' ' ? pos + 1 : pos;
  const size_t end = run_end(text, start, holds);
  if (end > start) return {end};
  return {pos + char_at(text, pos).bytes, false};
}

constexpr Scanner kDefault[] = {scan_default_punctuation, scan_gpt2, scan_numbers,
                                scan_three_digits};
constexpr Scanner kGpt2[] = {scan_gpt2};
constexpr Scanner kLlama3[] = {scan_llama3};
constexpr Scanner kQwen2[] = {scan_qwen2};
constexpr Scanner kQwen35[] = {scan_qwen35};
constexpr Scanner kDeepseekLlm[] = {
    scan_newline,        scan_deepseek_letters, scan_deepseek_punctuation,
    scan_trailing_space, scan_deepseek_cjk,     scan_numbers};
constexpr Scanner kDeepseekCoder[] = {scan_newline, scan_spaced_letters, scan_spaced_punctuation,
                                      scan_deepseek_cjk, scan_number};
constexpr Scanner kDeepseekV3[] = {scan_three_numbers, scan_chinese_japanese, scan_deepseek_v3};
constexpr Scanner kFalcon[] = {scan_falcon_punctuation, scan_gpt2, scan_three_digits};
constexpr Scanner kStarcoder[] = {scan_number, scan_gpt2};
constexpr Scanner kTekken[] = {scan_tekken};
constexpr Scanner kGpt4o[] = {scan_gpt4o};
constexpr Scanner kMinicpm5[] = {scan_three_numbers, scan_minicpm5};
constexpr Scanner kSeedCoder[] = {scan_seed_coder};
constexpr Scanner kBloom[] = {scan_bloom};
constexpr Scanner kViking[] = {scan_bloom, scan_number};

constexpr PreTokenizer kPreTokenizers[] = {
    {"default", kDefault},
    {"gpt-2", kGpt2},
    {"phi-2", kGpt2},
    {"mpt", kGpt2},
    {"olmo", kGpt2},
    {"gpt-neox", kGpt2},
    {"pythia", kGpt2},
    {"jais", kGpt2},
    {"trillion", kGpt2},
    {"granite-docling", kGpt2},
    {"exaone4", kGpt2},
    {"mellum", kGpt2},
    {"gigachat", kGpt2},
    {"a.x-4.0", kGpt2},
    {"modern-bert", kGpt2},
    {"jina-es", kGpt2},
    {"jina-de", kGpt2},
    {"jina-v2-es", kGpt2},
    {"jina-v2-de", kGpt2},
    {"llama-bpe", kLlama3, true, true},
    {"llama3", kLlama3, true, true},
    {"llama-v3", kLlama3, true, true},
    {"falcon3", kLlama3, true, true},
    {"falcon-h1", kLlama3, true, true},
    {"pixtral", kLlama3, true, true},
    {"midm-2.0", kLlama3, true, true},
    {"lfm2", kLlama3, true, true},
    {"dbrx", kLlama3},
    {"smaug-bpe", kLlama3},
    {"glm4", kLlama3},
    {"chatglm-bpe", kLlama3},
    {"qwen2", kQwen2},
    {"deepseek-r1-qwen", kQwen2},
    {"stablelm2", kQwen2},
    {"megrez", kQwen2},
    {"hunyuan", kQwen2},
    {"grok-2", kQwen2},
    {"solar-open", kQwen2},
    {"kormo", kQwen2},
    {"bailingmoe", kQwen2},
    {"bailingmoe2", kQwen2},
    {"llada-moe", kQwen2},
    {"qwen35", kQwen35},
    {"deepseek-llm", kDeepseekLlm},
    {"deepseek-coder", kDeepseekCoder},
    {"deepseek-v3", kDeepseekV3},
    {"hunyuan-dense", kDeepseekV3},
    {"joyai-llm", kDeepseekV3},
    {"falcon", kFalcon},
    {"starcoder", kStarcoder},
    {"refact", kStarcoder},
    {"command-r", kStarcoder},
    {"smollm", kStarcoder},
    {"codeshell", kStarcoder},
    {"exaone", kStarcoder},
    {"minerva-7b", kStarcoder},
    {"mellum2", kStarcoder},
    {"tekken", kTekken, true, true},
    {"gpt-4o", kGpt4o},
    {"llama4", kGpt4o},
    {"kanana2", kGpt4o},
    {"minimax-m2", kGpt4o},
    {"minicpm5", kMinicpm5, true},
    {"seed-coder", kSeedCoder},
    {"bloom", kBloom},
    {"poro-chat", kBloom},
    {"gpt3-finnish", kBloom},
    {"viking", kViking},
};

}  // namespace

const PreTokenizer* find_pre_tokenizer(std::string_view name) {
  for (const PreTokenizer& pre : kPreTokenizers) {
    if (pre.name == name) return &pre;
  }
  return nullptr;
}

void pre_tokenize(std::string_view text, std::span<const Scanner> passes, WordSink* sink) {
  if (passes.empty()) {
    sink->word(text);
    return;
  }
  const Scanner scan = passes[0];
  const auto rest = passes.subspan(1);
  size_t between = 0;  // end of the last match
  for (size_t pos = 0; pos < text.size();) {
    const Piece piece = scan(text, pos);
    if (piece.matched) {
      if (pos > between) pre_tokenize(text.substr(between, pos - between), rest, sink);
      pre_tokenize(text.substr(pos, piece.end - pos), rest, sink);
      between = piece.end;
    }
    pos = piece.end;
  }
  if (between < text.size()) pre_tokenize(text.substr(between), rest, sink);
}

}  // namespace sluice::tokenizer
