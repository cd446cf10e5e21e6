// Loads merges. Each side is looked up in the vocabulary once. A merge of unknown tokens is an
// error with its index and text.
#include "tokenizer/merge_table.h"

#include <algorithm>
#include <string>

namespace sluice::tokenizer {

namespace {

// Splits "left right" at its space; the left side may itself start with one.
bool cut_merge(std::string_view merge, std::string_view* left, std::string_view* right) {
  const size_t space = merge.find(' ', 1);
  if (merge.empty() || space == std::string_view::npos || space + 1 == merge.size()) return false;
  *left = merge.substr(0, space);
  *right = merge.substr(space + 1);
  return true;
}

}  // namespace

Status MergeTable::load(const gguf::Header& header, const Vocab& vocab) {
  const gguf::Value* merges = header.find("tokenizer.ggml.merges");
  if (merges == nullptr || merges->type != gguf::ValueType::kArray ||
      merges->element != gguf::ValueType::kString) {
    return error(Code::kBadTokenizer, "tokenizer.ggml.merges is missing or not a list of strings");
  }
  if (merges->count > kMaxMerges) {
    return error(Code::kBadTokenizer, "tokenizer.ggml.merges has %llu entries, more than %llu",
                 static_cast<unsigned long long>(merges->count),
                 static_cast<unsigned long long>(kMaxMerges));
  }
  const auto count = static_cast<size_t>(merges->count);
  slots_.assign(count + count / 2 + 1, kFree);
  products_.assign(count, kNoToken);
  gguf::StringCursor cursor(*merges);
  std::string_view merge;
  std::string joined;
  for (size_t i = 0; i < count; ++i) {
    std::string_view left;
    std::string_view right;
    const bool whole = cursor.next(&merge) && cut_merge(merge, &left, &right);
    const Token left_id = whole ? vocab.find(left) : kNoToken;
    const Token right_id = whole ? vocab.find(right) : kNoToken;
    joined.assign(left).append(right);
    const Token product = whole ? vocab.find(joined) : kNoToken;
    if (left_id == kNoToken || right_id == kNoToken || product == kNoToken) {
      return error(Code::kBadTokenizer, "merge %zu \"%.*s\" has an unknown token", i,
                   static_cast<int>(std::min<size_t>(merge.size(), 128)), merge.data());
    }
    if (vocab.type(product) == TokenType::kControl) continue;
    products_[i] = product;
    SLUICE_RETURN_IF_ERROR(insert(left_id, right_id, static_cast<uint32_t>(i)));
  }
  return {};
}

Status MergeTable::insert(Token left, Token right, uint32_t rank) {
  const uint64_t key = pair_key(left, right);
  size_t slot = slot_of(key);
  for (uint32_t probes = 0; slots_[slot] != kFree; ++probes) {
    if (slots_[slot] >> kRankBits == key) return {};
    if (probes > kMaxProbes) {
      return error(Code::kBadTokenizer, "too many hash collisions, at merge %u", rank);
    }
    if (++slot == slots_.size()) slot = 0;
  }
  slots_[slot] = key << kRankBits | rank;
  return {};
}

}  // namespace sluice::tokenizer
