// The files of a Hugging Face directory, one after the other.
#include "native/hf_directory.h"

#include <sys/stat.h>

#include <algorithm>

#include "gguf/hf_config.h"

namespace sluice::native {
namespace {

constexpr uint64_t kMaxSmallFile = 128ull << 20;  // tokenizer.json is the largest
constexpr uint64_t kFirstDirectoryBytes = 256 << 10;

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool is_url(const std::string& path) {
  return path.find("://") != std::string::npos;
}

// "dir/" or "https://host/dir/" and what followed the path of a URL ("?download=true").
struct Place {
  std::string directory;
  std::string query;
  [[nodiscard]] std::string file(const std::string& name) const {
    return std::string(directory).append(name).append(query);
  }
};

Place place_of(const std::string& path) {
  const size_t end = is_url(path) ? std::min(path.find_first_of("?#"), path.size()) : path.size();
  Place place{path.substr(0, end), path.substr(end)};
  if (ends_with(place.directory, "config.json") || ends_with(place.directory, ".safetensors")) {
    place.directory.resize(
        place.directory.rfind('/') == std::string::npos ? 0 : place.directory.rfind('/') + 1);
  } else if (!ends_with(place.directory, "/")) {
    place.directory += '/';
  }
  return place;
}

// The model's name: the directory's, or a hub's repository's ("ORG/NAME/resolve/main/").
std::string name_of(const Place& place) {
  std::string_view dir = place.directory;
  while (ends_with(dir, "/")) dir.remove_suffix(1);
  if (const size_t at = dir.rfind("/resolve/"); is_url(place.directory) && at != dir.npos) {
    dir = dir.substr(0, at);
  }
  return std::string(dir.substr(dir.rfind('/') + 1));
}

// Bytes computed here, read as a file of the model.
class OwnedSource final : public io::ByteSource {
 public:
  explicit OwnedSource(std::string bytes)
      : bytes_(std::move(bytes)),
        view_(io::open_memory({reinterpret_cast<const uint8_t*>(bytes_.data()), bytes_.size()})) {}
  [[nodiscard]] uint64_t size() const override { return view_->size(); }
  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override {
    return view_->read(offset, out);
  }

 private:
  std::string bytes_;
  std::unique_ptr<io::ByteSource> view_;
};

Status read_text(const std::string& path, const io::OpenOptions& options, std::string* out) {
  Result<std::unique_ptr<io::ByteSource>> source = io::open_source(path, options);
  if (!source.ok()) return source.status();
  const uint64_t size = (*source)->size();
  if (size > kMaxSmallFile) {
    return error(Code::kBadHeader, "%s is too large (%llu bytes)", path.c_str(),
                 static_cast<unsigned long long>(size));
  }
  out->resize(static_cast<size_t>(size));
  return (*source)->read(0, {reinterpret_cast<uint8_t*>(out->data()), out->size()});
}

// A file that need not be there: absent, it reads as empty.
Status read_optional(const std::string& path, const io::OpenOptions& options, std::string* out) {
  Status status = read_text(path, options, out);
  const bool absent = status.code() == Code::kNotFound || status.code() == Code::kHttpStatus;
  return absent ? Status() : status;
}

Status read_shard(const std::string& path, const char* name, const io::OpenOptions& options,
                  ModelHeader* out, gguf::SafetensorsFile* shard) {
  Result<std::unique_ptr<io::ByteSource>> source = io::open_source(path, options);
  if (!source.ok()) return source.status();
  std::vector<uint8_t> bytes;
  uint64_t want = std::min(kFirstDirectoryBytes, (*source)->size());
  for (;;) {
    const size_t have = bytes.size();
    bytes.resize(static_cast<size_t>(want));
    SLUICE_RETURN_IF_ERROR((*source)->read(have, std::span<uint8_t>(bytes).subspan(have)));
    const auto parsed = gguf::parse_safetensors(bytes, (*source)->size(), name, shard);
    if (!parsed.ok()) return parsed.status();
    if (parsed->done) break;
    if (parsed->need_bytes <= want || parsed->need_bytes > (*source)->size()) {
      return error(Code::kTruncated, "%s ends inside its header", name);
    }
    want = parsed->need_bytes;
  }
  out->sources.push_back(std::move(*source));
  return {};
}

}  // namespace

bool is_hf_directory(const std::string& path) {
  const std::string_view end =
      std::string_view(path).substr(0, is_url(path) ? path.find_first_of("?#") : path.size());
  if (ends_with(end, "config.json") || ends_with(end, ".safetensors")) return true;
  if (is_url(path)) return ends_with(end, "/");
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<ModelHeader> read_hf_header(const std::string& path, const io::OpenOptions& options) {
  const Place place = place_of(path);
  std::string config, tokenizer, settings, chat_template, index;
  SLUICE_RETURN_IF_ERROR(read_text(place.file("config.json"), options, &config));
  SLUICE_RETURN_IF_ERROR(read_text(place.file("tokenizer.json"), options, &tokenizer));
  SLUICE_RETURN_IF_ERROR(read_optional(place.file("tokenizer_config.json"), options, &settings));
  SLUICE_RETURN_IF_ERROR(read_optional(place.file("chat_template.jinja"), options, &chat_template));
  SLUICE_RETURN_IF_ERROR(
      read_optional(place.file("model.safetensors.index.json"), options, &index));
  std::vector<std::string> names = {"model.safetensors"};
  if (!index.empty()) {
    Result<std::vector<std::string>> shards = gguf::safetensors_shards(index);
    if (!shards.ok()) return shards.status();
    names = std::move(*shards);
  }
  ModelHeader out;
  gguf::HfDirectory directory{config, tokenizer, settings, chat_template, {}, {}};
  const std::string name = name_of(place);
  directory.name = name;
  directory.shards.resize(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    SLUICE_RETURN_IF_ERROR(
        read_shard(place.file(names[i]), names[i].c_str(), options, &out, &directory.shards[i]));
  }
  Result<gguf::HfModel> model = gguf::describe_hf_model(directory);
  if (!model.ok()) return model.status();
  out.header = std::move(model->header);
  if (!model->made.empty()) {
    out.sources.push_back(std::make_unique<OwnedSource>(std::move(model->made)));
  }
  return out;
}

}  // namespace sluice::native
