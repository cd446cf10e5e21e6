// Opens adapter files and reads as much of each as its parser needs.
#include "native/adapter_file.h"

#include <algorithm>

#include "io/address.h"
#include "native/hugging_face.h"
#include "platform/file.h"

namespace sluice::native {
namespace {

constexpr uint64_t kFirstBytes = 1 << 16;

Result<std::string> read_config(const std::string& path, const io::OpenOptions& options) {
  Result<std::unique_ptr<io::ByteSource>> source = io::open_source(path, options);
  if (!source.ok()) return source.status();
  const uint64_t size = (*source)->size();
  if (size > adapter::kMaxConfig) {
    return error(Code::kBadHeader, "adapter_config.json has %llu bytes, which is too many",
                 static_cast<unsigned long long>(size));
  }
  std::string text(static_cast<size_t>(size), '\0');
  SLUICE_RETURN_IF_ERROR(
      (*source)->read(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  return text;
}

}  // namespace

Status AdapterFiles::open_one(const std::string& given, const io::OpenOptions& options, File* out) {
  const Result<std::string> found = model_source(given, options);
  if (!found.ok()) return found.status();
  const std::string path = platform::with_slashes(*found);
  const std::string file = path.ends_with('/')            ? path + "adapter_model.safetensors"
                           : platform::is_directory(path) ? path + "/adapter_model.safetensors"
                                                          : path;
  const bool peft = file.ends_with(".safetensors");
  std::string config;
  if (peft) {
    const size_t slash = file.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : file.substr(0, slash + 1);
    Result<std::string> text = read_config(folder + "adapter_config.json", options);
    if (!text.ok()) return text.status();
    config = std::move(*text);
  }
  Result<std::unique_ptr<io::ByteSource>> source = io::open_source(file, options);
  if (!source.ok()) return source.status();
  out->source = std::move(*source);
  const uint64_t size = out->source->size();
  std::vector<uint8_t> prefix;
  for (uint64_t need = std::min(kFirstBytes, size);;) {
    if (need > std::min(size, adapter::kMaxDirectory)) {
      return error(Code::kBadHeader, "the adapter's header needs %llu bytes, which is too many",
                   static_cast<unsigned long long>(need));
    }
    const size_t had = prefix.size();
    prefix.resize(static_cast<size_t>(need));
    SLUICE_RETURN_IF_ERROR(out->source->read(had, std::span(prefix).subspan(had)));
    const Result<gguf::ParseProgress> parsed =
        peft ? adapter::parse_peft(config, prefix, size, &out->adapter)
             : adapter::parse_gguf(prefix, size, &out->adapter);
    if (!parsed.ok()) return parsed.status();
    if (parsed->done) return {};
    need = std::max(parsed->need_bytes, std::min(size, need + 1));
  }
}

Result<AdapterFiles> AdapterFiles::open(std::span<const AdapterChoice> choices,
                                        const io::OpenOptions& options) {
  AdapterFiles out;
  for (const AdapterChoice& choice : choices) {
    auto file = std::make_unique<File>();
    if (const Status status = open_one(choice.path, options, file.get()); !status.ok()) {
      return error(status.code(), "the adapter \"%.256s\": %s",
                   io::public_source(choice.path).c_str(), status.message().c_str());
    }
    const auto read = [source = file->source.get()](uint64_t offset, std::span<uint8_t> to) {
      return source->read(offset, to);
    };
    out.sources_.push_back({&file->adapter, choice.scale, read});
    out.files_.push_back(std::move(file));
  }
  return out;
}

}  // namespace sluice::native
