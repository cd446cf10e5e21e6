// Writes the front of a QSF file, field by field.
#include "convert/qsf_header.h"

#include <algorithm>
#include <string>

#include "convert/types.h"
#include "gguf/layer_importance.h"
#include "gguf/write.h"
#include "qsf/codec.h"
#include "qsf/crc32.h"

namespace sluice::convert {
namespace {

using gguf::Header;
using gguf::Tensor;
using gguf::TensorType;

constexpr uint32_t kNone = UINT32_MAX;  // no token id
constexpr uint8_t kMixedTypes = 5;      // quantization code for several types
constexpr uint8_t kGgmlTypes = 32;      // code of ggml type 0; sums beyond 255 wrap to QSF's own

// The header's activation. A model with another one than these says so; readers must not guess.
enum Activation : uint8_t { kGelu = 0, kSilu = 1, kRelu = 2, kOtherActivation = 255 };

// By architecture, since metadata does not name it. All others have SiLU. A unit test compares this
// with the programs of all families.
Activation activation_of(const Header& h, std::string_view arch) {
  constexpr std::string_view kOfGelu[] = {
      "phi2",           "falcon",          "gptneox",  "gpt2",       "starcoder",   "mpt",
      "bloom",          "codeshell",       "bert",     "starcoder2", "gemma",       "gemma2",
      "gemma3",         "gemma3n",         "gemma4",   "t5",         "modern-bert", "jina-bert-v2",
      "nomic-bert-moe", "gemma-embedding", "t5encoder"};
  constexpr std::string_view kOfOthers[] = {"arcee",   "nemotron", "nemotron_h", "nemotron_h_moe",
                                            "apertus", "gpt-oss",  "rwkv6",      "rwkv7"};
  const auto in = [arch](const auto& list) {
    return std::find(std::begin(list), std::end(list), arch) != std::end(list);
  };
  if (arch == "smallthinker") return kRelu;
  if (in(kOfOthers)) return kOtherActivation;
  const std::string_view named =
      h.get_string(std::string(arch) + ".hidden_activation").value_or("silu");
  if (arch == "bitnet" && named != "silu") return kOtherActivation;
  if (arch.starts_with("t5") && h.find_tensor("enc.blk.0.ffn_gate.weight") == nullptr) return kRelu;
  return in(kOfGelu) ? kGelu : kSilu;
}

// The code of the type that all matrices have whose names begin with `prefix`, or of several types.
// `experts`: those that are stored by expert, too.
uint8_t type_of_all(const Header& h, std::string_view prefix, bool experts) {
  const Tensor* first = nullptr;
  for (const Tensor& t : h.tensors) {
    if (t.n_dims < 2 || !t.name.starts_with(prefix)) continue;
    if (!experts && has_experts(t.name)) continue;
    if (first == nullptr) first = &t;
    if (t.type != first->type) return kMixedTypes;
  }
  return first == nullptr ? kMixedTypes : qsf_type_code(first->type);
}

// The header's quantization: one of QSF's own types, if all layers' matrices have it. Its codes
// there are those of the types.
uint8_t quantization_of(const Header& h) {
  const uint8_t code = type_of_all(h, "blk.", true);
  return code < kGgmlTypes ? code : kMixedTypes;
}

}  // namespace

uint8_t qsf_type_code(gguf::TensorType type) {
  return static_cast<uint8_t>(kGgmlTypes + static_cast<uint32_t>(type));
}

uint64_t QsfHeaderWriter::metadata_offset() const {
  return qsf::kHeaderBytes + std::max<uint64_t>(1, n_layers_) * qsf::kEntryBytes;
}

uint64_t QsfHeaderWriter::bytes() const {
  return metadata_offset() + metadata({}, {}, 0).all().size();
}

Bytes QsfHeaderWriter::index(std::span<const QsfSection> sections) const {
  Bytes out;
  const gguf::Value* importance = header_.find(gguf::kLayerImportance);
  for (const QsfSection& s : sections) {
    if (!s.layer) continue;
    out.put(s.offset);
    out.put(static_cast<uint32_t>(s.stored));
    out.put(static_cast<uint32_t>(s.bytes));
    out.put(type_of_all(header_, s.key, group_bytes_ == 0));
    out.put(s.compression);
    out.put(static_cast<uint16_t>(s.tensors));
    out.put(s.crc);
    const int32_t layer = layer_of(s.key);
    const bool known = importance != nullptr && layer >= 0;  // 1: not measured
    out.put(known ? static_cast<float>(importance->number_at(static_cast<uint64_t>(layer))) : 1.0f);
    const bool framed = s.compression == qsf::Compression::kZstd && s.bytes > qsf::kFrameBytes;
    out.put<uint32_t>(framed ? qsf::kFrameBytes : 0);
  }
  return out;
}

Bytes QsfHeaderWriter::metadata(std::span<const QsfSection> sections,
                                std::span<const ExpertGroup> groups, uint32_t sum_before) const {
  Bytes out;
  out.put<uint64_t>(header_.metadata.size());
  out.put_text(gguf::metadata_bytes(header_));
  for (const Tensor& t : header_.tensors) {
    out.put<uint64_t>(t.name.size());
    out.put_text(t.name);
    out.put(t.n_dims);
    for (uint32_t d = 0; d < t.n_dims; ++d) out.put(t.ne[d]);
    out.put(static_cast<uint32_t>(t.type));
    out.put(t.offset);
  }
  const uint64_t end = out.all().size() + group_bytes_;
  for (const ExpertGroup& group : groups) {
    out.put(group.offset);
    out.put(static_cast<uint32_t>(group.record));
    out.put(static_cast<uint32_t>(group.crcs.size()));
    out.put(static_cast<uint32_t>(group.slices.size()));
    out.put(static_cast<uint32_t>(std::max(header_.alignment, qsf::kTensorAlignment)));
    for (const uint64_t slice : group.slices) out.put(static_cast<uint32_t>(slice));
    for (const uint32_t crc : group.crcs) out.put(crc);
  }
  out.pad_to(end);
  uint32_t listed = 0;
  for (const QsfSection& s : sections) {
    if (s.layer) continue;
    out.put(s.offset);
    out.put(s.bytes);
    out.put(s.crc);
    out.put<uint32_t>(0);
    ++listed;
  }
  out.pad_to(out.all().size() + (n_others_ - listed) * qsf::kSectionBytes);
  out.put(static_cast<uint32_t>(header_.tensors.size()));
  out.put(n_others_);
  out.put(qsf::crc32(out.all(), sum_before));
  out.put(qsf::kTrailerMagic);
  return out;
}

Bytes QsfHeaderWriter::head(std::span<const QsfSection> sections, uint64_t file_bytes) const {
  const Header& h = header_;
  const std::string arch(h.get_string("general.architecture").value_or(""));
  const auto number = [&](const char* key) {
    return static_cast<uint32_t>(h.get_u64(arch + key).value_or(0));
  };
  const auto token = [&](const char* key) {
    return static_cast<uint32_t>(h.get_u64(key).value_or(kNone));
  };
  const Tensor* table = h.find_tensor("token_embd.weight");
  const uint32_t hidden =
      table != nullptr ? static_cast<uint32_t>(table->ne[0]) : number(".embedding_length");
  const uint32_t heads = number(".attention.head_count");
  const uint32_t head_size = number(".attention.key_length");
  uint32_t code = 4;
  for (uint32_t i = 0; const std::string_view name : {"gpt2", "llama", "mistral", "phi3"}) {
    if (arch == name) code = i;
    ++i;
  }
  const bool layer_norm = h.find(arch + ".attention.layer_norm_epsilon") != nullptr;
  const bool alibi = h.find(arch + ".attention.max_alibi_bias") != nullptr;
  Bytes out;
  out.put(qsf::kMagic);
  out.put<uint32_t>(group_bytes_ == 0 ? 1 : 2);  // version
  out.put(static_cast<uint32_t>(qsf::kHeaderBytes));
  for (const uint32_t field : {code, n_layers_, hidden, heads, number(".attention.head_count_kv"),
                               table != nullptr ? static_cast<uint32_t>(table->ne[1]) : 0,
                               number(".context_length"), number(".feed_forward_length"),
                               head_size != 0 || heads == 0 ? head_size : hidden / heads}) {
    out.put(field);
  }
  out.put(quantization_of(h));
  out.put(activation_of(h, arch));
  out.put<uint8_t>(layer_norm ? 0 : 1);
  out.put<uint8_t>(alibi ? 2 : h.find_tensor("position_embd.weight") != nullptr ? 0 : 1);
  out.put(static_cast<float>(h.get_f64(arch + ".rope.freq_base").value_or(10000)));
  out.put(qsf::kHeaderBytes);
  out.put(table != nullptr ? sections.front().offset : 0);
  out.put(sections.back().offset);
  for (const char* key : {"bos", "eos", "padding"}) {
    out.put(token(("tokenizer.ggml." + std::string(key) + "_token_id").c_str()));
  }
  out.put(static_cast<uint32_t>(file_bytes));
  out.put(qsf::crc32(out.all()));
  return out;
}

std::vector<uint8_t> QsfHeaderWriter::write(std::span<const QsfSection> sections,
                                            std::span<const ExpertGroup> groups,
                                            uint64_t file_bytes) const {
  Bytes tail;
  tail.put(metadata_offset());
  tail.put(static_cast<uint32_t>(metadata({}, {}, 0).all().size()));
  if (group_bytes_ > 0) {
    const uint64_t behind = n_others_ * qsf::kSectionBytes + qsf::kTrailerBytes;
    tail.put(bytes() - behind - group_bytes_);
    tail.put(static_cast<uint32_t>(group_bytes_));
  }
  tail.pad_to(qsf::kHeaderBytes - 100);
  const std::vector<uint8_t> entries = index(sections).all();
  const uint32_t sum = qsf::crc32(entries, qsf::crc32(tail.all()));
  std::vector<uint8_t> all = head(sections, file_bytes).all();
  all.insert(all.end(), tail.all().begin(), tail.all().end());
  all.insert(all.end(), entries.begin(), entries.end());
  all.resize(static_cast<size_t>(metadata_offset()));
  const Bytes keys = metadata(sections, groups, sum);
  all.insert(all.end(), keys.all().begin(), keys.all().end());
  return all;
}

}  // namespace sluice::convert
