// Quantization mixes as a function of a tensor's role and layer.
#include "convert/types.h"

#include <algorithm>
#include <charconv>

namespace sluice::convert {
namespace {

using gguf::Header;
using gguf::Tensor;
using T = gguf::TensorType;

// llama.cpp has no file type numbers for QSF's own types: the type's number is used, and the next
// ones for mixes of them.
constexpr Recipe kRecipes[] = {
    {"f32", T::kF32, 0},          {"f16", T::kF16, 1},        {"bf16", T::kBF16, 32},
    {"q4_0", T::kQ4_0, 2},        {"q4_1", T::kQ4_1, 3},      {"q5_0", T::kQ5_0, 8},
    {"q5_1", T::kQ5_1, 9},        {"q8_0", T::kQ8_0, 7},      {"q2_k", T::kQ2_K, 10},
    {"q2_k_s", T::kQ2_K, 21},     {"q3_k_s", T::kQ3_K, 11},   {"q3_k_m", T::kQ3_K, 12},
    {"q3_k_l", T::kQ3_K, 13},     {"q3_k", T::kQ3_K, 12},     {"q4_k_s", T::kQ4_K, 14},
    {"q4_k_m", T::kQ4_K, 15},     {"q4_k", T::kQ4_K, 15},     {"q5_k_s", T::kQ5_K, 16},
    {"q5_k_m", T::kQ5_K, 17},     {"q5_k", T::kQ5_K, 17},     {"q6_k", T::kQ6_K, 18},
    {"iq4_nl", T::kIQ4_NL, 25},   {"iq4_xs", T::kIQ4_XS, 30}, {"tq1_0", T::kTQ1_0, 36},
    {"tq2_0", T::kTQ2_0, 37},     {"mxfp4", T::kMXFP4, 38},   {"mxfp4_moe", T::kMXFP4, 38},
    {"iq1_s", T::kIQ1_S, 24},     {"iq1_m", T::kIQ1_M, 31},   {"iq2_xxs", T::kIQ2_XXS, 19},
    {"iq2_xs", T::kIQ2_XS, 20},   {"iq2_s", T::kIQ2_XS, 28},  {"iq2_m", T::kIQ2_S, 29},
    {"iq3_xxs", T::kIQ3_XXS, 23}, {"iq3_s", T::kIQ3_S, 26},   {"iq3_xs", T::kIQ3_S, 22},
    {"iq3_m", T::kIQ3_S, 27},     {"nvfp4", T::kNVFP4, 39},   {"q1_0", T::kQ1_0, 40},
    {"q2_0", T::kQ2_0, 41},       {"qsf2", T::kQSF2, 225},    {"qsf3", T::kQSF3, 226},
    {"qsf4", T::kQSF4, 227},      {"qsft", T::kQSFT, 228},    {"qsf2_m", T::kQSF2, 229},
    {"qsf3_m", T::kQSF3, 230},
};

enum FileType : uint32_t {
  kQ4_0 = 2,
  kQ5_0 = 8,
  kQ2_K = 10,
  kQ3_K_S = 11,
  kQ3_K_M = 12,
  kQ3_K_L = 13,
  kQ4_K_S = 14,
  kQ4_K_M = 15,
  kQ5_K_M = 17,
  kIQ2_XXS = 19,
  kIQ2_XS = 20,
  kQ2_K_S = 21,
  kIQ3_XS = 22,
  kIQ3_XXS = 23,
  kIQ1_S = 24,
  kIQ4_NL = 25,
  kIQ3_S = 26,
  kIQ3_M = 27,
  kIQ2_S = 28,
  kIQ2_M = 29,
  kIQ4_XS = 30,
  kIQ1_M = 31,
  kTQ1_0 = 36,
  kTQ2_0 = 37,
  kMxfp4Moe = 38,
  kQ2_0 = 41,
  kQsfTernary = 228,
  kQsf2M = 229,
  kQsf3M = 230,
};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Tensors where quantization hurts and saves almost nothing.
bool stays_as_it_is(const Tensor& t) {
  if (t.n_dims < 2 || !t.name.ends_with("weight")) return true;
  if (t.name == "position_embd.weight" || t.name == "token_types.weight") return true;
  for (const std::string_view part :
       {"_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid", "altup", "laurel",
        "per_layer_model_proj", "ssm_conv1d", "shortconv.conv.weight", "indexer.k_proj",
        "indexer.q_proj", "attn_rel_b", ".position_embd", ".patch_embd", ".patch_merger",
        ".rel_pos", "sam.neck.", "sam.net_",
        // Gemma 3's is stored transposed, which llama.cpp cannot
        // read in blocks.
        "mm.input_projection", "time_mix_first", "time_mix_w0", "time_mix_w1", "time_mix_w2",
        "time_mix_v0", "time_mix_v1", "time_mix_v2", "time_mix_a0", "time_mix_a1", "time_mix_a2",
        "time_mix_g1", "time_mix_g2", "time_mix_decay_w1", "time_mix_decay_w2",
        "time_mix_lerp_fused"}) {
    if (has(t.name, part)) return true;
  }
  return false;
}

enum class Role : uint8_t {
  kHead,
  kEmbedding,
  kValue,
  kKey,
  kQuery,
  kAttentionOut,
  kDown,
  kGateOrUp,
  kOther
};

Role role_of(std::string_view name) {
  if (name == "output.weight") return Role::kHead;
  if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") return Role::kEmbedding;
  for (const std::string_view part : {"attn_v.weight", "attn_qkv.weight", "attn_kv_b.weight"}) {
    if (has(name, part)) return Role::kValue;
  }
  if (has(name, "attn_k.weight")) return Role::kKey;
  if (has(name, "attn_q.weight")) return Role::kQuery;
  if (has(name, "attn_output.weight")) return Role::kAttentionOut;
  if (has(name, "ffn_up") || has(name, "ffn_gate")) return Role::kGateOrUp;
  return has(name, "ffn_down") ? Role::kDown : Role::kOther;
}

// The value of `key` for the model's architecture; for a list by layer, its first value.
uint64_t hyperparameter(const Header& header, std::string_view key) {
  const std::string arch(header.get_string("general.architecture").value_or(""));
  const gguf::Value* value = header.find(arch + "." + std::string(key));
  if (value == nullptr) return 0;
  return value->type == gguf::ValueType::kArray ? static_cast<uint64_t>(value->number_at(0))
                                                : value->as_u64().value_or(0);
}

// Applies a quantization mix to the tensors of one model, in order.
class Mixture {
 public:
  Mixture(const Header& header, const Recipe& recipe, bool has_imatrix)
      : recipe_(recipe),
        file_type_(recipe.file_type),
        has_imatrix_(has_imatrix),
        tied_(header.find_tensor("output.weight") == nullptr),
        n_layers_(static_cast<int32_t>(hyperparameter(header, "block_count"))),
        n_experts_(hyperparameter(header, "expert_count")) {
    const std::string_view arch = header.get_string("general.architecture").value_or("");
    const uint64_t heads = hyperparameter(header, "attention.head_count");
    const uint64_t kv = hyperparameter(header, "attention.head_count_kv");
    groups_ = kv > 0 ? heads / kv : 1;
    falcon_ = arch == "falcon";
    very_deep_ = n_layers_ == 80 && heads != kv && (arch == "llama" || arch == "qwen2");
    for (const Tensor& t : header.tensors) n_values_ += role_of(t.name) == Role::kValue ? 1 : 0;
  }

  T type(const Tensor& t) {
    const Role role = role_of(t.name);
    const bool head = role == Role::kHead || (tied_ && role == Role::kEmbedding);
    if (file_type_ == kMxfp4Moe) {
      const bool experts = !head && t.ne[2] > 1;
      return experts || (recipe_.name == "mxfp4" && !head) ? T::kMXFP4 : T::kQ8_0;
    }
    if (head) return head_type(t);
    if (role == Role::kEmbedding) return embedding_type();
    if (is_small()) return small_type(role);
    switch (role) {
      case Role::kValue:
        return value_type(i_value_++);
      case Role::kKey:
        return n_experts_ == 8 ? T::kQ8_0 : query_type();
      case Role::kQuery:
        return query_type();
      case Role::kDown:
        return down_type(layer_or(t, &i_down_));
      case Role::kGateOrUp: {
        const int32_t i = layer_or(t, has(t.name, "ffn_up") ? &i_up_ : &i_gate_);
        const bool inner = i >= n_layers_ / 8 && i < 7 * n_layers_ / 8;
        return file_type_ == kIQ3_XS && inner ? T::kIQ3_XXS : recipe_.type;
      }
      case Role::kAttentionOut:
        return attention_out_type();
      default:
        return recipe_.type;
    }
  }

 private:
  // The first and the last eighth, and every third between them.
  static bool more_bits(int32_t i, int32_t n) {
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
  }
  bool is(std::initializer_list<uint32_t> types) const {
    return std::find(types.begin(), types.end(), file_type_) != types.end();
  }

  // Experts of a layer are not always consecutive, so their layer is in the name.
  int32_t layer_or(const Tensor& t, int32_t* count) const {
    const int32_t layer = layer_of(t.name);
    return n_experts_ > 1 && layer >= 0 ? layer : (*count)++;
  }
  // The mixes of one and two bits have rules of their own.
  bool is_small() const { return is({kIQ1_S, kIQ1_M, kIQ2_XXS, kIQ2_XS, kIQ2_S, kIQ2_M}); }

  T small_type(Role role) {
    const bool larger = is({kIQ2_S, kIQ2_M});
    const T more = larger ? T::kIQ3_S : T::kQ2_K;
    switch (role) {
      case Role::kValue:
        return groups_ >= 4 || n_experts_ >= 4 ? T::kQ4_K : more;
      case Role::kKey:
        return n_experts_ == 8 ? T::kQ4_K : recipe_.type;
      case Role::kDown:
        return i_down_++ < n_layers_ / 8 ? more : recipe_.type;
      case Role::kAttentionOut:
        return n_experts_ == 8        ? T::kQ5_K
               : larger               ? T::kIQ3_S
               : is({kIQ1_S, kIQ1_M}) ? T::kIQ2_XXS
                                      : recipe_.type;
      default:
        return recipe_.type;
    }
  }
  T embedding_type() const {
    if (is({kTQ1_0, kTQ2_0, kQ2_0, kQsfTernary})) return T::kQ4_K;
    if (is({kIQ1_S, kIQ1_M, kIQ2_XXS, kIQ2_XS})) return T::kQ2_K;
    if (is({kQsf2M, kQsf3M})) return T::kQSF4;
    return is({kIQ2_S, kIQ2_M, kIQ3_XXS}) ? T::kIQ3_S : recipe_.type;
  }
  T query_type() const {
    return file_type_ == kIQ3_XS ? T::kIQ3_XXS : file_type_ == kIQ3_XXS ? T::kIQ2_S : recipe_.type;
  }

  T head_type(const Tensor& t) const {
    if (falcon_ || t.ne[0] % gguf::type_info(recipe_.type)->block_size != 0) return T::kQ8_0;
    if (is_small() || file_type_ == kIQ3_XXS) return T::kQ5_K;
    return recipe_.type == T::kQ8_0 ? T::kQ8_0 : T::kQ6_K;
  }

  T value_type(int32_t i) const {
    T type = recipe_.type;
    if (file_type_ == kQ2_K) {
      type = groups_ >= 4 ? T::kQ4_K : T::kQ3_K;
    } else if (is({kQsf2M, kQsf3M})) {
      type = T::kQSF4;
    } else if (is({kQ2_K_S, kIQ3_XXS, kIQ3_XS, kIQ3_S}) && groups_ >= 4) {
      type = T::kQ4_K;
    } else if (file_type_ == kIQ3_M) {
      type = T::kQ4_K;
    } else if (file_type_ == kQ3_K_M) {
      type = i < 2 ? T::kQ5_K : T::kQ4_K;
    } else if (file_type_ == kQ3_K_L) {
      type = T::kQ5_K;
    } else if (is({kIQ4_NL, kIQ4_XS}) && groups_ >= 4) {
      type = T::kQ5_K;
    } else if (is({kQ4_K_M, kQ5_K_M}) && more_bits(i, n_values_)) {
      type = T::kQ6_K;
    } else if (file_type_ == kQ4_K_S && i < 4) {
      type = T::kQ5_K;
    }
    if (very_deep_ && (type == T::kQ3_K || type == T::kQ4_K)) type = T::kQ5_K;
    return n_experts_ == 8 ? T::kQ8_0 : type;
  }

  T down_type(int32_t i) const {
    const int32_t n = n_layers_;
    switch (file_type_) {
      case kQ2_K:
        return T::kQ3_K;
      case kQsf2M:
        return T::kQSF3;
      case kQsf3M:
        return T::kQSF4;
      case kQ2_K_S:
        return i < n / 8 ? T::kQ4_K : recipe_.type;
      case kQ3_K_M:
        return i < n / 16 ? T::kQ5_K : !falcon_ || more_bits(i, n) ? T::kQ4_K : T::kQ3_K;
      case kIQ3_M:
        return i < n / 8 || (n_experts_ == 8 && more_bits(i, n)) ? T::kQ4_K : recipe_.type;
      case kQ3_K_L:
        return falcon_ ? T::kQ4_K : T::kQ5_K;
      case kQ4_K_M:
        if (falcon_) {
          return i < n / 16 ? T::kQ6_K : more_bits(i, n) ? T::kQ5_K : T::kQ4_K;
        }
        return more_bits(i, n) ? T::kQ6_K : T::kQ4_K;
      case kQ5_K_M:
        return more_bits(i, n) ? T::kQ6_K : T::kQ5_K;
      case kQ4_K_S:
        return !falcon_ && i < n / 8 ? T::kQ5_K : T::kQ4_K;
      case kIQ4_NL:
      case kIQ4_XS:
        return i < n / 8 && !has_imatrix_ ? T::kQ5_K : recipe_.type;
      case kQ4_0:
        return i < n / 8 && has_imatrix_ ? T::kQ4_1 : T::kQ4_0;
      case kQ5_0:
        return i < n / 8 && has_imatrix_ ? T::kQ5_1 : T::kQ5_0;
      default:
        return recipe_.type;
    }
  }

  T attention_out_type() const {
    if (falcon_) return file_type_ == kQ3_K_L ? T::kQ4_K : recipe_.type;
    if (n_experts_ == 8) {
      return is({kQ2_K, kQ3_K_S, kQ3_K_M, kIQ4_NL, kQ4_K_S, kQ4_K_M, kIQ4_XS, kIQ3_XXS, kIQ3_XS,
                 kIQ3_S, kIQ3_M})
                 ? T::kQ5_K
                 : recipe_.type;
    }
    return file_type_ == kQ2_K      ? T::kQ3_K
           : file_type_ == kIQ3_XXS ? T::kIQ3_S
           : is({kQ3_K_M, kIQ3_M})  ? T::kQ4_K
           : file_type_ == kQ3_K_L  ? T::kQ5_K
                                    : recipe_.type;
  }

  const Recipe& recipe_;
  uint32_t file_type_;
  bool has_imatrix_, tied_, falcon_ = false, very_deep_ = false;
  int32_t n_layers_, n_values_ = 0, i_value_ = 0, i_down_ = 0, i_gate_ = 0, i_up_ = 0;
  uint64_t n_experts_, groups_ = 1;
};

// A type whose blocks fit rows of `cols` values, if `type` does not.
Choice fitting(T type, uint64_t cols) {
  const auto fits = [cols](T t) { return cols % gguf::type_info(t)->block_size == 0; };
  if (fits(type)) return {type, false};
  T instead = T::kF16;
  switch (type) {
    case T::kIQ1_S:
    case T::kIQ1_M:
    case T::kIQ2_XXS:
    case T::kIQ2_XS:
    case T::kIQ2_S:
    case T::kIQ3_XXS:
    case T::kIQ3_S:
    case T::kIQ4_XS:
      instead = T::kIQ4_NL;
      break;
    case T::kNVFP4:
      instead = T::kMXFP4;
      break;
    case T::kQ1_0:
    case T::kQ2_0:
    case T::kQ2_K:
    case T::kQ3_K:
    case T::kTQ1_0:
    case T::kTQ2_0:
    case T::kQSFT:
      instead = T::kQ4_0;
      break;
    case T::kQSF2:
    case T::kQSF3:
    case T::kQSF4:
      instead = T::kQ4_1;
      break;
    case T::kQ4_K:
      instead = T::kQ5_0;
      break;
    case T::kQ5_K:
      instead = T::kQ5_1;
      break;
    case T::kQ6_K:
      instead = T::kQ8_0;
      break;
    default:
      break;
  }
  return {fits(instead) ? instead : T::kF16, true};
}

bool is_float(T type) {
  return type == T::kF32 || type == T::kF16 || type == T::kBF16;
}

// llama.cpp convolves with F16 and F32 only, and resizes tables of positions in F32.
bool needs_f32(const Tensor& t) {
  if (t.n_dims < 2) return is_float(t.type);
  return t.type == T::kBF16 && (has(t.name, ".patch_embd") || has(t.name, ".position_embd"));
}

T kept(const Tensor& t) {
  return needs_f32(t) ? T::kF32 : t.type;
}

}  // namespace

bool needs_imatrix(std::string_view name, T type, const Recipe* recipe) {
  const Role role = role_of(name);
  if (role == Role::kHead || role == Role::kEmbedding) return false;
  switch (type) {
    case T::kIQ1_S:
    case T::kIQ1_M:
    case T::kIQ2_XXS:
    case T::kIQ2_XS:
    case T::kIQ2_S:
    case T::kIQ3_XXS:
      return true;
    case T::kQ2_K:
      return recipe != nullptr && recipe->file_type == kQ2_K_S;
    default:
      return false;
  }
}

bool is_quantizable(const Tensor& tensor) {
  return !stays_as_it_is(tensor);
}

uint32_t file_type_of(T type) {
  switch (type) {  // mixes of which there are several
    case T::kQ3_K:
      return kQ3_K_M;
    case T::kQ4_K:
      return kQ4_K_M;
    case T::kQ5_K:
      return kQ5_K_M;
    case T::kIQ2_S:
      return kIQ2_S;
    default:
      break;
  }
  for (const Recipe& r : kRecipes) {
    if (r.type == type) return r.file_type;
  }
  return 0;
}

Result<const Recipe*> find_recipe(std::string_view name) {
  std::string lower(name), known;
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  for (const Recipe& r : kRecipes) {
    if (r.name == lower) return &r;
    known.append(known.empty() ? "" : ", ").append(r.name);
  }
  return error(Code::kInvalidArgument, "unknown quantization type \"%.32s\"; use one of %s",
               lower.c_str(), known.c_str());
}

std::vector<Choice> choose_types(const Header& header, const Recipe& recipe, bool pure,
                                 bool has_imatrix) {
  Mixture mixture(header, recipe, has_imatrix);
  std::vector<Choice> out;
  for (const Tensor& t : header.tensors) {
    if (!is_quantizable(t)) {
      out.push_back({kept(t)});
    } else if (pure || is_float(recipe.type)) {
      out.push_back(fitting(recipe.type, t.ne[0]));
    } else {
      out.push_back(fitting(mixture.type(t), t.ne[0]));
    }
  }
  return out;
}

std::vector<Choice> keep_types(const Header& header) {
  std::vector<Choice> out;
  for (const Tensor& t : header.tensors) out.push_back({kept(t)});
  return out;
}

int32_t layer_of(std::string_view name) {
  constexpr std::string_view kBlock = "blk.";
  if (!name.starts_with(kBlock)) return -1;
  int32_t layer = -1;
  const auto [end, bad] =
      std::from_chars(name.data() + kBlock.size(), name.data() + name.size(), layer);
  return bad == std::errc() && layer >= 0 && end < name.data() + name.size() && *end == '.' ? layer
                                                                                            : -1;
}

}  // namespace sluice::convert
