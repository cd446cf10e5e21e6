// Loads a Hugging Face directory. First come config.json, the index and the sizes of all shards, so
// that sizes are known before anything large is read. Then come the other texts and the shards'
// headers.
#include <array>

#include "hf/config.h"
#include "hf/pooling.h"
#include "hf/projector.h"
#include "open/address.h"
#include "open/header_loader.h"

namespace sluice::open {
namespace {

enum : uint32_t {
  kConfig,
  kIndex,
  kModules,
  kPooling,
  kDense,  // one for each Dense module of modules.json
  kLastDense = kDense + hf::kMaxDense - 1,
  kPreprocessor,
  kTokenizer,
  kTokenizerConfig,
  kChatTemplate,
  kTexts
};
constexpr uint32_t kTextsBeforeShards = kTokenizer;
constexpr const char* kPreprocessorName = "preprocessor_config.json";
struct {
  const char* name;
  bool optional;
} constexpr kText[kTexts] = {{kConfigName, false},
                             {"model.safetensors.index.json", true},
                             {"modules.json", true},
                             {"1_Pooling/config.json", true},
                             {"/config.json", true},
                             {"/config.json", true},
                             {kPreprocessorName, true},
                             {"tokenizer.json", false},
                             {"tokenizer_config.json", true},
                             {"chat_template.jinja", true}};

struct DirectoryLoader final : HeaderLoader {
  explicit DirectoryLoader(Source from) : HeaderLoader(std::move(from)) {
    if (source.names.empty()) place = place_of(source.address);
  }

  Status next() override;
  Status take() override {
    if (need.want == FileRequestKind::kBytes) return parse_shard();
    ++n_texts;
    return {};
  }
  void skip() override { texts[n_texts++] = {}; }
  uint64_t first_bytes(uint64_t size) const override {
    return std::clamp(size / 16, kMinFirstBytes, kMaxFirstBytes);
  }
  const char* reading() const override { return shard_names[n_parsed].c_str(); }
  Status missing(std::string_view why) const override;

  Status want_shard();
  Status want_text();
  [[nodiscard]] bool is_of_use(uint32_t text) const;
  Status parse_shard();
  Status describe();

  Place place;
  std::array<Block, kTexts> texts;  // the first n_texts are read, or known to be missing
  uint32_t n_texts = 0;
  std::vector<std::string> shard_names;  // those of Dense modules at the end
  std::vector<std::string> dense;        // their folders
  std::vector<hf::SafetensorsFile> shards;
  uint64_t n_tensors = 0;
};

Status DirectoryLoader::next() {
  if (n_texts < kTextsBeforeShards) return want_text();
  if (shard_names.empty()) {
    shard_names.emplace_back("model.safetensors");
    if (const std::string_view index = texts[kIndex].text(); !index.empty()) {
      Result<std::vector<std::string>> listed = hf::safetensors_shards(index);
      if (!listed.ok()) return listed.status();
      shard_names = std::move(*listed);
      texts[kIndex] = {};
    }
    for (const std::string& folder : dense) shard_names.push_back(folder + "/model.safetensors");
  }
  if (files.size() < shard_names.size()) return want_shard();
  if (n_texts < kTexts) return want_text();
  return n_parsed < files.size() ? want_bytes() : describe();
}

Status DirectoryLoader::missing(std::string_view why) const {
  const std::string name(need.want == FileRequestKind::kFile ? shard_names[files.size()]
                                                             : base_name(need.name));
  const bool config = name == kConfigName;
  return error(Code::kNotFound, "the model directory has no %.80s: %.300s%s%s", name.c_str(),
               std::string(why).c_str(), config && !why.ends_with('.') ? "." : "",
               config ? " To open a GGUF file, name the file itself." : "");
}

Status DirectoryLoader::want_shard() {
  const std::string& name = shard_names[files.size()];
  const std::optional<uint32_t> choice = chosen(name);
  if (!source.names.empty() && !choice) {
    return error(Code::kNotFound, "%s is not among the chosen files", name.c_str());
  }
  return want(FileRequestKind::kFile, place.file(name), choice.value_or(0));
}

Status DirectoryLoader::want_text() {
  if (n_texts == kPooling && !texts[kModules].text().empty()) {
    Result<std::vector<std::string>> folders = hf::dense_folders(texts[kModules].text());
    if (!folders.ok()) return folders.status();
    dense = std::move(*folders);
  }
  if (!is_of_use(n_texts)) {
    ++n_texts;
    return next();
  }
  const bool of_dense = n_texts >= kDense && n_texts <= kLastDense;
  const std::string name = (of_dense ? dense[n_texts - kDense] : "") + kText[n_texts].name;
  const bool optional = kText[n_texts].optional;
  const std::optional<uint32_t> choice = chosen(name);
  if (!source.names.empty() && !choice) {
    if (!optional) return error(Code::kNotFound, "%s is not among the chosen files", name.c_str());
    ++n_texts;
    return next();
  }
  need.optional = optional;
  need.offset = 0;
  need.length = kMaxSmallFile;
  into = &texts[n_texts];
  return want(FileRequestKind::kText, place.file(name), choice.value_or(0));
}

bool DirectoryLoader::is_of_use(uint32_t text) const {
  if (source.projector) return text <= kIndex || text == kPreprocessor;
  if (text == kPreprocessor) return false;
  // Without modules.json, its other files are not requested.
  if (text == kPooling) return !texts[kModules].text().empty();
  return text < kDense || text > kLastDense || text - kDense < dense.size();
}

Status DirectoryLoader::parse_shard() {
  File& file = files[n_parsed];
  hf::SafetensorsFile shard;
  const Result<gguf::ParseProgress> parsed =
      hf::parse_safetensors(file.prefix.bytes(), file.size, shard_names[n_parsed].c_str(), &shard);
  if (!parsed.ok()) return parsed.status();
  if (!parsed->done) return ask_for(parsed->need_bytes);
  n_tensors += shard.entries.size();
  if (n_tensors > gguf::kMaxTensorCount) {
    return error(Code::kBadHeader, "the model's files have more than %llu tensors",
                 static_cast<unsigned long long>(gguf::kMaxTensorCount));
  }
  shards.push_back(std::move(shard));
  file.prefix = {};
  ++n_parsed;
  return {};
}

Status DirectoryLoader::describe() {
  // An upper bound of the memory for reading the vocabulary, with its tables.
  const uint64_t room = 4 * texts[kTokenizer].bytes().size() + (64 << 10);
  if (!AlignedBuffer().allocate(room).ok()) return no_memory(room);
  hf::Directory from{
      texts[kConfig].text(),       texts[kTokenizer].text(), texts[kTokenizerConfig].text(),
      texts[kChatTemplate].text(), std::move(shards),        place.model_name()};
  from.pooling = texts[kPooling].text();
  from.preprocessor = texts[kPreprocessor].text();
  const size_t n_model = from.shards.size() - dense.size();
  for (size_t i = 0; i < dense.size(); i++) {
    from.dense.push_back({dense[i], texts[kDense + i].text(), std::move(from.shards[n_model + i])});
  }
  from.shards.resize(n_model);
  Result<hf::Model> model =
      source.projector ? hf::describe_projector(from) : hf::describe_model(from);
  texts = {};
  shards = {};
  if (!model.ok()) return model.status();
  header = std::move(model->header);
  made = std::move(model->made);
  derived = std::move(model->derived);
  return want(FileRequestKind::kDone, {}, 0);
}

}  // namespace

std::unique_ptr<HeaderLoader> directory_loader(Source source) {
  return std::make_unique<DirectoryLoader>(std::move(source));
}

Opener Opener::of_directory(Source source) {
  return Opener(directory_loader(std::move(source)));
}

}  // namespace sluice::open
