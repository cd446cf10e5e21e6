// The two courses that opening takes. A GGUF: a file, its header, then the same for each further
// part that the first header announces. A directory: config.json, the index, every shard, so that
// sizes are known before anything large is read; then the other texts and the shards' headers.
#include "open/opener.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/aligned.h"
#include "hf/config.h"
#include "hf/pooling.h"
#include "open/address.h"

namespace sluice::open {
namespace {

// First bytes of a file that are read before its parser says how many it takes: a small model's
// header is small, and its budget may be too; a later part has nothing but a few tensors there.
constexpr uint64_t kMostFirstBytes = 1 << 20;
constexpr uint64_t kLeastFirstBytes = 1 << 16;

enum : uint32_t {
  kConfig,
  kIndex,
#ifndef SLUICE_FEWER_CHECKPOINTS
  kModules,
  kPooling,
  kDense,  // of each Dense module of modules.json
  kLastDense = kDense + hf::kMostDense - 1,
#endif
  kTokenizer,
  kTokenizerConfig,
  kChatTemplate,
  kTexts
};
constexpr uint32_t kTextsBeforeShards = kTokenizer;
struct {
  const char* name;
  bool optional;
} constexpr kText[kTexts] = {{"config.json", false},       {"model.safetensors.index.json", true},
#ifndef SLUICE_FEWER_CHECKPOINTS
                             {"modules.json", true},       {"1_Pooling/config.json", true},
                             {"/config.json", true},       {"/config.json", true},
#endif
                             {"tokenizer.json", false},    {"tokenizer_config.json", true},
                             {"chat_template.jinja", true}};

// Memory that may be refused, for bytes that stay where they are until more of them are wanted. (A
// vector would end the program when a browser's heap is full.)
struct Block {
  AlignedBuffer memory;

  // What is held stays at the front.
  [[nodiscard]] bool grow(uint64_t bytes) {
    AlignedBuffer larger;
    if (!larger.allocate(bytes).ok()) return false;
    if (memory.size() > 0)
      std::memcpy(larger.data(), memory.data(), std::min(memory.size(), larger.size()));
    memory.swap(larger);
    return true;
  }
  [[nodiscard]] std::span<uint8_t> bytes() const { return {memory.as<uint8_t>(), memory.size()}; }
  [[nodiscard]] std::string_view text() const { return {memory.as<char>(), memory.size()}; }
};

struct File {
  uint64_t size = 0;
  uint64_t wanted = 0;  // bytes of the prefix that the parser is to see next
  Block prefix;
};

Status no_answer() {
  return error(Code::kInvalidArgument, "this is no answer to what the opener wants");
}

Status no_memory(uint64_t bytes) {
  return error(Code::kOutOfMemory, "the model's description needs %llu bytes that are not there",
               static_cast<unsigned long long>(bytes));
}

}  // namespace

struct Opener::Impl {
  explicit Impl(Source from);

  void advance();
  Status next_of_gguf();
  Status next_of_directory();
  Status want_part();
  Status want_shard();
  Status want_text();
  Status want_bytes();
  Status want(Want what, std::string name, uint32_t choice);
  [[nodiscard]] std::optional<uint32_t> chosen(std::string_view name) const;

  Status parse_gguf();
  Status parse_qsf();
  Status parse_shard();
  Status ask_for(uint64_t bytes);
  Status describe();
  [[nodiscard]] Status truncated() const;
  [[nodiscard]] std::string part_name() const;
  [[nodiscard]] Status in_part(const Status& status) const;

  Source source;
  bool directory = false;
  Place place;
  uint32_t first = 0;  // of the chosen files, the first part

  Need need;
  Status failure;
  bool reserved = false;

  std::vector<File> files;  // those that are open; of the first n_parsed the header is known
  uint32_t n_parsed = 0;
  uint32_t n_parts = 1;
  std::array<Block, kTexts> texts;  // the first n_texts are there, or known to be absent
  uint32_t n_texts = 0;
  std::vector<std::string> shard_names;  // Dense modules' at the end
  std::vector<std::string> dense;        // their folders
  std::vector<hf::SafetensorsFile> shards;
  uint64_t n_tensors = 0;

  gguf::Header header;
  std::vector<qsf::Run> runs;  // of a QSF file
  std::string made;
  std::vector<hf::Derived> derived;
};

Opener::Impl::Impl(Source from) : source(std::move(from)) {
  if (source.names.empty()) {
    directory = source.directory || names_directory(source.address);
    if (directory) place = place_of(source.address);
  } else if (chosen(kText[kConfig].name)) {
    directory = true;
  } else {
    first = chosen(first_part(base_name(source.names[0]))).value_or(0);
  }
}

// --- what is wanted next

void Opener::Impl::advance() {
  if (failure.ok()) failure = directory ? next_of_directory() : next_of_gguf();
}

Status Opener::Impl::next_of_gguf() {
  if (files.size() > n_parsed) return want_bytes();
  return n_parsed < n_parts ? want_part() : want(Want::kDone, {}, 0);
}

Status Opener::Impl::next_of_directory() {
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

Status Opener::Impl::want(Want what, std::string name, uint32_t choice) {
  need.want = what;
  need.file = static_cast<uint32_t>(what == Want::kFile ? files.size() : n_parsed);
  need.name = std::move(name);
  need.choice = choice;
  return {};
}

// A chosen file by its name, wherever it lies.
std::optional<uint32_t> Opener::Impl::chosen(std::string_view name) const {
  for (size_t i = 0; i < source.names.size() && !name.empty(); i++) {
    if (base_name(source.names[i]) == name) return static_cast<uint32_t>(i);
  }
  return {};
}

// Of the part that is opened or read next; "" where names do not tell.
std::string Opener::Impl::part_name() const {
  const std::string& name = source.names.empty() ? source.address : source.names[first];
  return n_parsed == 0 ? name : split_name(name, n_parsed, n_parts);
}

Status Opener::Impl::want_part() {
  std::string name = part_name();
  uint32_t choice = first;
  if (n_parsed > 0 && !source.names.empty()) {  // files without such names are in order
    choice = name.empty() ? n_parsed : chosen(base_name(name)).value_or(UINT32_MAX);
    if (choice >= source.names.size()) {
      return error(Code::kNotFound, "part %u of %u of the model is not among the chosen files",
                   n_parsed + 1, n_parts);
    }
    name = source.names[choice];
  } else if (n_parsed > 0 && name.empty()) {
    return error(Code::kInvalidArgument,
                 "the model has %u parts but the name of its first does not end in "
                 "-00001-of-%05u.gguf",
                 n_parts, n_parts);
  }
  return want(Want::kFile, std::move(name), choice);
}

Status Opener::Impl::want_shard() {
  const std::string& name = shard_names[files.size()];
  const std::optional<uint32_t> choice = chosen(name);
  if (!source.names.empty() && !choice) {
    return error(Code::kNotFound, "%s is not among the chosen files", name.c_str());
  }
  return want(Want::kFile, place.file(name), choice.value_or(0));
}

Status Opener::Impl::want_text() {
#ifndef SLUICE_FEWER_CHECKPOINTS
  if (n_texts == kPooling && !texts[kModules].text().empty()) {
    Result<std::vector<std::string>> folders = hf::dense_folders(texts[kModules].text());
    if (!folders.ok()) return folders.status();
    dense = std::move(*folders);
  }
  // Nobody is asked for the others of these where there is not the first.
  const bool of_dense = n_texts >= kDense && n_texts <= kLastDense;
  if ((n_texts == kPooling && texts[kModules].text().empty()) ||
      (of_dense && n_texts - kDense >= dense.size())) {
    ++n_texts;
    return next_of_directory();
  }
  const std::string name = (of_dense ? dense[n_texts - kDense] : "") + kText[n_texts].name;
#else
  const std::string name = kText[n_texts].name;
#endif
  const bool optional = kText[n_texts].optional;
  const std::optional<uint32_t> choice = chosen(name);
  if (!source.names.empty() && !choice) {
    if (!optional) return error(Code::kNotFound, "%s is not among the chosen files", name.c_str());
    ++n_texts;
    return next_of_directory();
  }
  need.optional = optional;
  need.offset = 0;
  need.length = kMaxSmallFile;
  return want(Want::kText, place.file(name), choice.value_or(0));
}

Status Opener::Impl::want_bytes() {
  const File& file = files[n_parsed];
  if (file.wanted == 0) return in_part(truncated());
  uint64_t held = 0;
  for (const File& f : files) held += f.prefix.bytes().size();
  need.offset = file.prefix.bytes().size();
  need.length = file.wanted - need.offset;
  if (held + need.length > gguf::kMaxHeaderBytes) {
    return error(Code::kBadHeader, "the headers of the model's files have more than %llu bytes",
                 static_cast<unsigned long long>(gguf::kMaxHeaderBytes));
  }
  return want(Want::kBytes, {}, 0);
}

// --- what was supplied

Status Opener::Impl::truncated() const {
  return error(Code::kTruncated, "%s ends inside its header",
               directory ? shard_names[n_parsed].c_str() : "the file");
}

// Errors of a later part name it.
Status Opener::Impl::in_part(const Status& status) const {
  if (status.ok() || directory || n_parsed == 0) return status;
  const std::string name = part_name();
  return error(status.code(), "%.80s: %s", std::string(base_name(name)).c_str(),
               status.message().c_str());
}

Status Opener::Impl::ask_for(uint64_t bytes) {
  File& file = files[n_parsed];
  if (bytes <= file.wanted || file.wanted >= file.size) return truncated();
  file.wanted = std::min(bytes, file.size);
  return {};
}

Status Opener::Impl::parse_gguf() {
  File& file = files[n_parsed];
  if (n_parsed == 0 && qsf::is_qsf(file.prefix.bytes())) return parse_qsf();
  gguf::Header part;
  const Result<gguf::ParseProgress> parsed =
      gguf::parse_header(file.prefix.bytes(), file.size, n_parsed == 0 ? &header : &part);
  if (!parsed.ok()) return parsed.status();
  if (!parsed->done) return ask_for(parsed->need_bytes);
  if (n_parsed == 0) {
    const Result<uint32_t> count = gguf::split_count(header);
    if (!count.ok()) return count.status();
    n_parts = *count;
  } else {
    SLUICE_RETURN_IF_ERROR(gguf::merge_split(&header, part, n_parsed));
  }
  ++n_parsed;
  return {};
}

Status Opener::Impl::parse_qsf() {
  File& file = files[0];
  const Result<gguf::ParseProgress> parsed =
      qsf::parse(file.prefix.bytes(), file.size, &header, &runs);
  if (!parsed.ok()) return parsed.status();
  if (!parsed->done) return ask_for(parsed->need_bytes);
  ++n_parsed;
  return {};
}

Status Opener::Impl::parse_shard() {
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

Status Opener::Impl::describe() {
  // What the vocabulary takes while it is read, with its tables.
  const uint64_t room = 4 * texts[kTokenizer].bytes().size() + (64 << 10);
  if (!AlignedBuffer().allocate(room).ok()) return no_memory(room);
  hf::Directory from{
      texts[kConfig].text(),       texts[kTokenizer].text(), texts[kTokenizerConfig].text(),
      texts[kChatTemplate].text(), std::move(shards),        place.model_name()};
#ifndef SLUICE_FEWER_CHECKPOINTS
  from.pooling = texts[kPooling].text();
  const size_t n_model = from.shards.size() - dense.size();
  for (size_t i = 0; i < dense.size(); i++) {
    from.dense.push_back({dense[i], texts[kDense + i].text(), std::move(from.shards[n_model + i])});
  }
  from.shards.resize(n_model);
#endif
  Result<hf::Model> model = hf::describe_model(from);
  texts = {};
  shards = {};
  if (!model.ok()) return model.status();
  header = std::move(model->header);
  made = std::move(model->made);
  derived = std::move(model->derived);
  return want(Want::kDone, {}, 0);
}

// --- the opener

Opener::Opener(Source source) : impl_(std::make_unique<Impl>(std::move(source))) {
  impl_->advance();
}

Opener::~Opener() = default;

Result<Need> Opener::need() const {
  if (!impl_->failure.ok()) return impl_->failure;
  return impl_->need;
}

Status Opener::opened(uint64_t size) {
  Impl& m = *impl_;
  if (!m.failure.ok() || m.need.want != Want::kFile) return no_answer();
  const uint64_t most = m.files.empty() || m.directory ? kMostFirstBytes : kLeastFirstBytes;
  const uint64_t wanted = std::min(size, std::clamp(size / 16, kLeastFirstBytes, most));
  File& file = m.files.emplace_back();
  file.size = size;
  file.wanted = wanted;
  m.advance();
  return {};
}

Status Opener::absent(std::string_view why) {
  Impl& m = *impl_;
  const Want want = m.need.want;
  if (!m.failure.ok() || (want != Want::kFile && want != Want::kText)) return no_answer();
  if (want == Want::kText && m.need.optional) {
    ++m.n_texts;
    m.reserved = false;
    m.texts[m.n_texts - 1] = {};
    m.advance();
    return {};
  }
  const std::string name(m.directory && want == Want::kFile ? m.shard_names[m.files.size()]
                                                            : base_name(m.need.name)),
      reason(why);
  const bool config = m.directory && name == kText[kConfig].name;
  m.failure = error(Code::kNotFound, "%s%.80s%s: %.300s%s%s",
                    m.directory ? "the model directory has no " : "", name.c_str(),
                    m.directory ? "" : " is missing", reason.c_str(),
                    config && !why.ends_with('.') ? "." : "",
                    config ? " A GGUF file is opened by its own name." : "");
  return {};
}

Result<std::span<uint8_t>> Opener::reserve(uint64_t size) {
  Impl& m = *impl_;
  const bool text = m.need.want == Want::kText;
  if (!m.failure.ok() || (!text && m.need.want != Want::kBytes)) return no_answer();
  if (!text && size != m.need.length) return no_answer();
  if (text && size > kMaxSmallFile) {
    return error(Code::kBadHeader, "%s is too large (%llu bytes)", kText[m.n_texts].name,
                 static_cast<unsigned long long>(size));
  }
  Block& block = text ? m.texts[m.n_texts] : m.files[m.n_parsed].prefix;
  if (!block.grow(m.need.offset + size)) return no_memory(size);
  m.reserved = true;
  return block.bytes().subspan(static_cast<size_t>(m.need.offset));
}

Status Opener::supply() {
  Impl& m = *impl_;
  if (!m.failure.ok() || !m.reserved) return no_answer();
  m.reserved = false;
  if (m.need.want == Want::kText) {
    ++m.n_texts;
  } else {
    m.failure = m.in_part(m.directory ? m.parse_shard() : m.parse_gguf());
  }
  m.advance();
  return {};
}

gguf::Header& Opener::header() {
  return impl_->header;
}

std::vector<qsf::Run>& Opener::qsf_runs() {
  return impl_->runs;
}

std::span<const uint8_t> Opener::synthesized_file() const {
  return {reinterpret_cast<const uint8_t*>(impl_->made.data()), impl_->made.size()};
}

std::vector<hf::Derived>& Opener::derived() {
  return impl_->derived;
}

}  // namespace sluice::open
