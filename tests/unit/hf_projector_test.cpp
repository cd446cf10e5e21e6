// Vision towers of Hugging Face directories. A directory is made of a fixture's projector by the
// inverse of the tables, and must give the same keys, tensors and embeddings.
#include <map>

#include "hf/projector.h"
#include "hf_tiny_model.h"
#include "native/tensor_transform_source.h"
#include "vision_encoder_util.h"

namespace sluice::test {
namespace {

using nlohmann::json;
using Names = std::vector<std::pair<std::string, std::string>>;  // parts of ours and theirs

// Types and shapes of a checkpoint's tensors, with bytes.
struct Stored {
  std::string dtype, bytes;
  std::vector<uint64_t> shape;
};
using Checkpoint = std::map<std::string, Stored>;

struct Family {
  const char* fixture;
  json config, preprocessor;
  std::string whole, layers;  // prefixes of theirs
  Names names, of_layer;
};

const Names kSiglip = {{"ln1.", "layer_norm1."},         {"ln2.", "layer_norm2."},
                       {"attn_q.", "self_attn.q_proj."}, {"attn_k.", "self_attn.k_proj."},
                       {"attn_v.", "self_attn.v_proj."}, {"attn_out.", "self_attn.out_proj."},
                       {"ffn_up.", "mlp.fc1."},          {"ffn_down.", "mlp.fc2."}};
const json kHalf = {0.5, 0.5, 0.5};

Family qwen25() {
  return {"qwen2.5vl",
          {{"model_type", "qwen2_5_vl"},
           {"hidden_size", 48},
           {"vision_config",
            {{"depth", 4},
             {"hidden_act", "silu"},
             {"hidden_size", 32},
             {"intermediate_size", 72},
             {"num_heads", 2},
             {"patch_size", 14},
             {"spatial_merge_size", 2},
             {"temporal_patch_size", 2},
             {"window_size", 112},
             {"fullatt_block_indexes", {1, 3}}}}},
          json::object(),
          "visual.",
          "visual.blocks.",
          {{"v.patch_embd.", "patch_embed.proj."},
           {"v.post_ln.", "merger.ln_q."},
           {"mm.0.", "merger.mlp.0."},
           {"mm.2.", "merger.mlp.2."}},
          {{"ln1.", "norm1."},
           {"ln2.", "norm2."},
           {"attn_q.", "attn.qkv."},
           {"attn_k.", "attn.qkv."},
           {"attn_v.", "attn.qkv."},
           {"attn_out.", "attn.proj."},
           {"ffn_gate.", "mlp.gate_proj."},
           {"ffn_up.", "mlp.up_proj."},
           {"ffn_down.", "mlp.down_proj."}}};
}

Family qwen3() {
  return {"qwen3vl",
          {{"model_type", "qwen3_vl"},
           {"text_config", {{"hidden_size", 48}}},
           {"vision_config",
            {{"depth", 3},
             {"hidden_act", "gelu_pytorch_tanh"},
             {"hidden_size", 32},
             {"intermediate_size", 64},
             {"num_heads", 2},
             {"num_position_embeddings", 64},
             {"patch_size", 16},
             {"deepstack_visual_indexes", {1, 2}}}}},
          {{"image_mean", kHalf}, {"image_std", kHalf}},
          "model.visual.",
          "model.visual.blocks.",
          {{"v.patch_embd.", "patch_embed.proj."},
           {"v.position_embd.", "pos_embed."},
           {"v.post_ln.", "merger.norm."},
           {"mm.0.", "merger.linear_fc1."},
           {"mm.2.", "merger.linear_fc2."},
           {"v.deepstack.1.norm.", "deepstack_merger_list.0.norm."},
           {"v.deepstack.1.fc", "deepstack_merger_list.0.linear_fc"},
           {"v.deepstack.2.norm.", "deepstack_merger_list.1.norm."},
           {"v.deepstack.2.fc", "deepstack_merger_list.1.linear_fc"}},
          {{"ln1.", "norm1."},
           {"ln2.", "norm2."},
           {"attn_qkv.", "attn.qkv."},
           {"attn_out.", "attn.proj."},
           {"ffn_up.", "mlp.linear_fc1."},
           {"ffn_down.", "mlp.linear_fc2."}}};
}

Family gemma3() {
  return {"gemma3",
          {{"model_type", "gemma3"},
           {"mm_tokens_per_image", 16},
           {"text_config", {{"hidden_size", 40}}},
           {"vision_config",
            {{"hidden_size", 32},
             {"image_size", 96},
             {"intermediate_size", 64},
             {"num_attention_heads", 2},
             {"num_hidden_layers", 2},
             {"patch_size", 6}}}},
          {{"image_mean", kHalf}, {"image_std", kHalf}},
          "",
          "vision_tower.vision_model.encoder.layers.",
          {{"v.patch_embd.", "vision_tower.vision_model.embeddings.patch_embedding."},
           {"v.position_embd.", "vision_tower.vision_model.embeddings.position_embedding."},
           {"v.post_ln.", "vision_tower.vision_model.post_layernorm."},
           {"mm.input_projection.weight", "multi_modal_projector.mm_input_projection_weight"},
           {"mm.soft_emb_norm.", "multi_modal_projector.mm_soft_emb_norm."}},
          kSiglip};
}

Family smolvlm() {
  return {"idefics3",
          {{"model_type", "smolvlm"},
           {"scale_factor", 4},
           {"text_config", {{"hidden_size", 48}}},
           {"vision_config",
            {{"hidden_size", 32},
             {"image_size", 48},
             {"intermediate_size", 64},
             {"num_attention_heads", 2},
             {"num_hidden_layers", 2},
             {"patch_size", 6}}}},
          {{"size", {{"longest_edge", 144}}}, {"image_mean", kHalf}, {"image_std", kHalf}},
          "model.",
          "model.vision_model.encoder.layers.",
          {{"v.patch_embd.", "vision_model.embeddings.patch_embedding."},
           {"v.position_embd.", "vision_model.embeddings.position_embedding."},
           {"v.post_ln.", "vision_model.post_layernorm."},
           {"mm.model.fc.", "connector.modality_projection.proj."}},
          kSiglip};
}

std::string replaced(const std::string& name, const Names& names) {
  for (const auto& [ours, theirs] : names) {
    if (name.starts_with(ours)) return theirs + name.substr(ours.size());
  }
  ADD_FAILURE() << name << " is not in the test's table";
  return name;
}

std::string their_name(const Family& family, const std::string& ours) {
  const std::string block = "v.blk.";
  if (!ours.starts_with(block)) return family.whole + replaced(ours, family.names);
  const size_t dot = ours.find('.', block.size());
  return family.layers + ours.substr(block.size(), dot + 1 - block.size()) +
         replaced(ours.substr(dot + 1), family.of_layer);
}

// Puts the planes of two convolutions side by side: [rows][channels][frame][plane].
std::string both_frames(const std::string& a, const std::string& b, size_t plane) {
  std::string out;
  for (size_t at = 0; at < a.size(); at += plane) {
    out += a.substr(at, plane);
    out += b.substr(at, plane);
  }
  return out;
}

std::string minus_one(std::string bytes) {
  for (size_t at = 0; at < bytes.size(); at += 4) {
    float x = 0;
    std::memcpy(&x, bytes.data() + at, 4);
    x -= 1;
    std::memcpy(bytes.data() + at, &x, 4);
  }
  return bytes;
}

Checkpoint checkpoint_of(const Family& family, const ParsedFile& file) {
  Checkpoint out;
  const auto bytes_of = [&file](const gguf::Tensor& t) {
    return std::string(reinterpret_cast<const char*>(file.bytes.data() + t.offset), t.bytes);
  };
  for (const gguf::Tensor& t : file.header.tensors) {
    const std::string ours(t.name);
    if (ours.ends_with(".weight.1")) continue;
    Stored made;
    made.dtype = t.type == gguf::TensorType::kF32 ? "F32" : "F16";
    made.bytes = bytes_of(t);
    for (uint32_t i = t.n_dims; i-- > 0;) made.shape.push_back(t.ne[i]);
    if (ours == "mm.soft_emb_norm.weight") made.bytes = minus_one(made.bytes);
    if (const gguf::Tensor* second = file.header.find_tensor(ours + ".1")) {
      made.bytes = both_frames(made.bytes, bytes_of(*second), t.ne[0] * t.ne[1] * 2);
      made.shape.insert(made.shape.begin() + 2, 2);
    }
    Stored& stored = out[their_name(family, ours)];
    if (stored.shape.empty()) {
      stored = made;
    } else {  // one tensor for Q, K and V
      stored.bytes += made.bytes;
      stored.shape[0] += made.shape[0];
    }
  }
  return out;
}

// The directory's files, and the projector that they describe.
struct Directory {
  std::string config, preprocessor, shard;
  Result<hf::Model> model = error(Code::kInternal, "not described");

  Directory(const json& whole, const json& reading, const Checkpoint& tensors)
      : config(whole.dump()), preprocessor(reading.dump()) {
    SafetensorsBuilder builder;
    builder.bf16("lm_head.weight", {4, 8});  // of the text model
    for (const auto& [name, t] : tensors) builder.tensor(name, t.dtype, t.shape, t.bytes);
    shard = builder.build();
    const auto parsed = hf::parse(shard);
    EXPECT_TRUE(parsed.ok());
    if (!parsed.ok()) return;
    hf::Directory files{config, {}, {}, {}, {*parsed}, "random"};
    files.preprocessor = preprocessor;
    model = hf::describe_projector(files);
  }
};

std::vector<float> embeddings(const Directory& directory, const json& entry) {
  vision::EncoderFile::Sources sources;
  sources.push_back(io::open_memory(hf::as_bytes(directory.shard)));
  if (!directory.model->derived.empty()) {
    auto derived =
        native::TensorTransformSource::open(directory.model->derived, {sources[0].get()});
    EXPECT_TRUE(derived.ok());
    sources.push_back(std::move(*derived));
  }
  auto file = vision::EncoderFile::open(directory.model->header, std::move(sources), {}, 2);
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? encode_all(**file, inputs_of((*file)->projector(), entry))
                   : std::vector<float>();
}

void expect_equal_keys(const gguf::Header& made, const gguf::Header& fixture) {
  size_t keys = 0;
  for (const gguf::KeyValue& kv : fixture.metadata) {
    if (!kv.key.starts_with("clip.") && kv.key != "general.type") continue;
    ++keys;
    const gguf::Value* value = made.find(kv.key);
    ASSERT_NE(value, nullptr) << kv.key;
    EXPECT_EQ(value->type, kv.value.type) << kv.key;
    EXPECT_EQ(value->element, kv.value.element) << kv.key;
    EXPECT_EQ(value->count, kv.value.count) << kv.key;
    EXPECT_TRUE(std::equal(value->bytes.begin(), value->bytes.end(), kv.value.bytes.begin(),
                           kv.value.bytes.end()))
        << kv.key;
  }
  EXPECT_GT(keys, 10u);
}

void expect_equal_shapes(const gguf::Header& made, const gguf::Header& fixture) {
  EXPECT_EQ(made.tensors.size(), fixture.tensors.size());
  for (const gguf::Tensor& t : fixture.tensors) {
    const gguf::Tensor* found = made.find_tensor(t.name);
    ASSERT_NE(found, nullptr) << t.name;
    EXPECT_EQ(found->type, t.type) << t.name;
    EXPECT_EQ(found->n_dims, t.n_dims) << t.name;
    EXPECT_EQ(found->ne, t.ne) << t.name;
  }
}

TEST(HfProjector, DirectoriesHaveTheFixturesKeysTensorsAndEmbeddings) {
  size_t families = 0;
  for (const Family& family : {qwen25(), qwen3(), gemma3(), smolvlm()}) {
    const auto path = vision_folder() / (std::string(family.fixture) + ".mmproj.gguf");
    if (!std::filesystem::exists(path)) continue;  // not in the part that tests/data has
    SCOPED_TRACE(family.fixture);
    const auto file = parse_file(path);
    const Directory directory(family.config, family.preprocessor, checkpoint_of(family, *file));
    ASSERT_TRUE(directory.model.ok()) << directory.model.status().message();
    EXPECT_TRUE(hf::has_projector(directory.config));
    expect_equal_keys(directory.model->header, file->header);
    expect_equal_shapes(directory.model->header, file->header);
    json entry;
    for (const json& one : vision_manifest()) {
      if (one["name"] == family.fixture) entry = one["cases"][0];
    }
    const auto encoder = open_encoder(*file);
    const std::vector<float> want = encode_all(*encoder, inputs_of(encoder->projector(), entry));
    const std::vector<float> got = embeddings(directory, entry);
    if (std::string(family.fixture) == "gemma3") {  // w - 1 + 1 is rounded
      EXPECT_LT(relative_error(got, want), 1e-12);
    } else {
      EXPECT_EQ(got, want);
    }
    ++families;
  }
  EXPECT_EQ(families, has_all_vision_fixtures() ? 4u : 3u);
}

// A change of one family's files, and what the refusal must name.
struct Refusal {
  Code code;
  const char* says;
  std::function<void(Family*, Checkpoint*)> change;
};

TEST(HfProjector, RefusesByName) {
  const auto set = [](const char* key, const json& value) {
    return [=](Family* f, Checkpoint*) { f->config["vision_config"][key] = value; };
  };
  const Refusal refusals[] = {
      {Code::kNotSupported, "llava",
       [](Family* f, Checkpoint*) { f->config["model_type"] = "llava"; }},
      {Code::kNotSupported, "qwen3_vl",
       [](Family* f, Checkpoint*) { f->config.erase("vision_config"); }},
      {Code::kBadHeader, "vision_config",
       [](Family* f, Checkpoint*) { f->config["vision_config"] = 3; }},
      {Code::kBadHeader, "hidden_size",
       [](Family* f, Checkpoint*) { f->config.erase("text_config"); }},
      {Code::kBadHeader, "depth", set("depth", 0)},
      {Code::kBadHeader, "depth", set("depth", 1 << 30)},
      {Code::kBadHeader, "num_position_embeddings", set("num_position_embeddings", 65)},
      {Code::kBadHeader, "deepstack_visual_indexes", set("deepstack_visual_indexes", {1, 3})},
      {Code::kUnsupportedArchitecture, "hidden_act", set("hidden_act", "silu")},
      {Code::kUnsupportedArchitecture, "temporal_patch_size", set("temporal_patch_size", 4)},
      {Code::kUnsupportedArchitecture, "deepstack_merger_list.1",
       set("deepstack_visual_indexes", {1})},
      {Code::kBadHeader, "image_mean",
       [](Family* f, Checkpoint*) {
         f->preprocessor["image_mean"] = {1, 2};
       }},
      {Code::kUnsupportedArchitecture, "model.visual.other",
       [](Family*, Checkpoint* t) {
         (*t)["model.visual.other.weight"] = {"F32", "abcd", {1}};
       }},
      {Code::kBadShape, "patch_embed.proj.weight",
       [](Family*, Checkpoint* t) { (*t)["model.visual.patch_embed.proj.weight"].shape[2] = 1; }},
  };
  const auto file = parse_file(vision_folder() / "qwen3vl.mmproj.gguf");
  for (const Refusal& refusal : refusals) {
    Family family = qwen3();
    Checkpoint tensors = checkpoint_of(family, *file);
    refusal.change(&family, &tensors);
    if (auto& conv = tensors["model.visual.patch_embed.proj.weight"]; conv.shape[2] == 1) {
      conv.bytes.resize(conv.bytes.size() / 2);
    }
    const Directory directory(family.config, family.preprocessor, tensors);
    ASSERT_FALSE(directory.model.ok()) << refusal.says;
    EXPECT_EQ(code_name(directory.model.status().code()), code_name(refusal.code)) << refusal.says;
    EXPECT_NE(directory.model.status().message().find(refusal.says), std::string::npos)
        << directory.model.status().message();
  }
}

// --- the text models of the same directories

// A model of tests/unit/hf_directory.h with other names of its tensors.
Result<hf::Model> text_model(const std::string& config, const std::string& prefix, bool qk_norm,
                             bool post_norms) {
  hf::TinyModel tiny;
  tiny.config = config;
  std::string file = tiny_tensors(qk_norm, post_norms, true).build();
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  std::string header = file.substr(8, length);
  const std::string data = file.substr(8 + length);
  for (size_t at = 0; (at = header.find("\"model.", at)) != std::string::npos;) {
    header.replace(at + 1, std::strlen("model."), prefix);
    at += prefix.size();
  }
  tiny.files = {SafetensorsBuilder::wrap(header, data)};
  return tiny.describe();
}

std::string nested(const std::string& type, json text, const json& vision = json::object()) {
  json inner = json::parse(tiny_config("inner"));
  inner.update(text);
  return json{{"model_type", type}, {"text_config", inner}, {"vision_config", vision}}.dump();
}

TEST(HfProjector, TextModelsOfTheSameDirectories) {
  const json mrope = {{"rope_scaling", {{"mrope_section", {1, 1, 0}}, {"rope_type", "default"}}}};
  const auto qwen = text_model(nested("qwen3_vl", mrope, {{"deepstack_visual_indexes", {0, 1}}}),
                               "model.language_model.", true, false);
  ASSERT_TRUE(qwen.ok()) << qwen.status().message();
  EXPECT_EQ(qwen->header.get_string("general.architecture"), "qwen3vl");
  EXPECT_EQ(qwen->header.get_u64("qwen3vl.n_deepstack_layers"), 2u);
  const gguf::Value* sections = qwen->header.find("qwen3vl.rope.dimension_sections");
  ASSERT_NE(sections, nullptr);
  for (const auto& [i, n] :
       std::vector<std::pair<uint64_t, double>>{{0, 1}, {1, 1}, {2, 0}, {3, 0}})
    EXPECT_EQ(sections->number_at(i), n);
  EXPECT_NE(qwen->header.find_tensor("blk.1.attn_q_norm.weight"), nullptr);
  EXPECT_NE(qwen->header.find_tensor("output.weight"), nullptr);

  const auto older = text_model(nested("qwen2_5_vl", mrope), "model.", false, false);
  ASSERT_TRUE(older.ok()) << older.status().message();
  EXPECT_EQ(older->header.get_string("general.architecture"), "qwen2vl");
  const auto gemma =
      text_model(nested("gemma3", {{"sliding_window", 16}}), "language_model.model.", true, true);
  ASSERT_TRUE(gemma.ok()) << gemma.status().message();
  EXPECT_EQ(gemma->header.get_string("general.architecture"), "gemma3");
  EXPECT_NE(gemma->header.find_tensor("blk.0.post_ffw_norm.weight"), nullptr);
  const auto smol =
      text_model(nested("smolvlm", json::object()), "model.text_model.", false, false);
  ASSERT_TRUE(smol.ok()) << smol.status().message();
  EXPECT_EQ(smol->header.get_string("general.architecture"), "llama");
  EXPECT_EQ(smol->header.get_bool("sluice.rope_neox"), true);

  const auto wrong = text_model(
      nested("qwen2_5_vl", {{"rope_scaling", {{"mrope_section", {1, 1}}, {"type", "mrope"}}}}),
      "model.", false, false);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("mrope_section"), std::string::npos);
}

}  // namespace
}  // namespace sluice::test
