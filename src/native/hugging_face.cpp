// Lists a repository by the hub's API, page by page.
#include "native/hugging_face.h"

#include <algorithm>
#include <map>

#include "hf/json.h"
#include "hf/projector.h"
#include "io/address.h"
#include "native/hub_files.h"
#include "platform/file.h"

namespace sluice::native {
namespace {

constexpr int kMaxPages = 200;             // of a thousand files each
constexpr size_t kMaxPageBytes = 4 << 20;  // a thousand files take 300 kB
constexpr size_t kMaxListedInMessage = 12;

using Files = std::map<std::string, uint64_t>;

Status add_page(const std::string& text, Files* files) {
  constexpr const char* kName = "the hub's list of files";
  const Result<hf::Json> page = hf::parse_json("{\"files\":" + text + "}", kName);
  if (!page.ok()) return page.status();
  const hf::Json* entries = hf::json_find(*page, "files");
  if (entries == nullptr || !entries->is_array()) {
    return error(Code::kBadHeader, "%s is not a list", kName);
  }
  for (const hf::Json& entry : *entries) {
    const auto path = hf::json_string(entry, "path");
    const auto size = hf::json_int(entry, "size");
    if (hf::json_string(entry, "type") != "file" || !path || !size || *size < 0) continue;
    (*files)[std::string(*path)] = static_cast<uint64_t>(*size);
  }
  return {};
}

Result<Files> list(const HubReference& reference, const io::OpenOptions& options) {
  Files files;
  const std::string& hub = options.credentials.hub;
  std::string next = reference.list_url(hub);
  for (int page = 0; !next.empty(); ++page) {
    if (page == kMaxPages) {
      return error(Code::kNotSupported, "%s has more than %d pages of files: name the file",
                   reference.repository.c_str(), kMaxPages);
    }
    Result<io::RemoteText> text = io::fetch_text(next, kMaxPageBytes, options);
    if (!text.ok()) return text.status();
    if (text->status != 200) {
      const bool other = reference.revision != "main";
      const bool token = !options.credentials.token.empty();
      return error(text->status == 404 ? Code::kNotFound : Code::kHttpStatus,
                   "%s%s%.100s does not exist on %s, or %s (HTTP status %d)",
                   reference.repository.c_str(), other ? " at revision " : "",
                   other ? reference.revision.c_str() : "", io::public_address(hub).c_str(),
                   token ? "the token does not allow it" : "needs a token: set HF_TOKEN",
                   text->status);
    }
    SLUICE_RETURN_IF_ERROR(add_page(text->text, &files));
    next = std::move(text->next);
  }
  return files;
}

// "A, B and 3 more"
std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kMaxListedInMessage); ++i) {
    out += (i > 0 ? ", " : "") + names[i].substr(0, 100);
  }
  if (names.size() > kMaxListedInMessage) {
    out += " and " + std::to_string(names.size() - kMaxListedInMessage) + " more";
  }
  return out.empty() ? "nothing" : out;
}

Status no_such_quantization(const HubReference& reference, const std::vector<HubModel>& models) {
  std::vector<std::string> names;
  for (const HubModel& model : models) {
    const std::string quantization = quantization_of(model.path);
    const std::string& name = quantization.empty() ? model.path : quantization;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return error(Code::kNotFound, "%s has no %s; it has %s", reference.repository.c_str(),
               reference.tag.c_str(), listed(names).c_str());
}

// The directory of a repository without GGUF files.
Result<std::string> directory_of(const HubReference& reference, const Files& files,
                                 const std::string& hub) {
  const bool tensors = std::any_of(files.begin(), files.end(), [](const auto& file) {
    return file.first.ends_with(".safetensors");
  });
  const bool config = files.contains("config.json") || files.contains("adapter_config.json");
  if (reference.tag.empty() && tensors && config) {
    return reference.url(hub, "");
  }
  std::vector<std::string> names;
  for (const auto& [path, bytes] : files) names.push_back(path);
  return error(Code::kNotFound, "%s has no GGUF model%s; it has %s", reference.repository.c_str(),
               !reference.tag.empty() ? "" : " and no config.json with safetensors",
               listed(names).c_str());
}

Result<std::string> find(const HubReference& reference, const io::OpenOptions& options) {
  const std::string& hub = options.credentials.hub;
  const Result<Files> files = list(reference, options);
  if (!files.ok()) return files.status();
  const std::vector<HubModel> models = models_among(*files);
  if (models.empty()) return directory_of(reference, *files, hub);
  const std::optional<HubModel> model = choose(models, reference.tag);
  if (!model) return no_such_quantization(reference, models);
  return reference.url(hub, model->path);
}

// Whether a directory of safetensors has a vision tower beside its text model.
bool has_vision_tower(const std::string& directory) {
  const Result<std::unique_ptr<io::ByteSource>> file = io::open_file(directory + "/config.json");
  if (!file.ok() || (*file)->size() > hf::kMaxJsonDocument) return false;
  std::string text((*file)->size(), '\0');
  const Status read = (*file)->read(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
  return read.ok() && hf::has_projector(text);
}

}  // namespace

std::string projector_source(const std::string& model, const io::OpenOptions& options) {
  if (HubReference::is_one(model)) {
    const Result<HubReference> reference = HubReference::parse(model);
    if (!reference.ok()) return {};
    const Result<Files> files = list(*reference, options);
    if (!files.ok()) return {};
    std::vector<std::string> names;
    for (const auto& [path, bytes] : *files) names.push_back(path);
    std::optional<std::string> found = choose_projector(names, reference->path);
    if (!found) found = choose_projector(names, "");
    return found ? reference->url(options.credentials.hub, *found) : std::string();
  }
  if (model.find("://") != std::string::npos) return {};
  const bool directory = platform::is_directory(model);
  const size_t end = directory ? model.size() : model.find_last_of("/\\");
  const std::string parent = end == std::string::npos ? "." : model.substr(0, end);
  const std::optional<std::string> found = choose_projector(
      platform::names_in(parent), directory ? std::string_view() : std::string_view(model));
  if (found) return parent + "/" + *found;
  return directory && has_vision_tower(model) ? model : std::string();
}

Result<std::string> cached_model(const std::string& text,
                                 const std::vector<io::CachedModel>& models) {
  const Result<HubReference> reference = HubReference::parse(text);
  if (!reference.ok()) return reference.status();
  const std::string end = io::stored_address(reference->url("", reference->path));
  Files files;
  std::map<std::string, std::string> urls;  // by path in the repository
  for (const io::CachedModel& model : models) {
    const size_t at = model.url.rfind(end);
    if (at == std::string::npos) continue;
    const std::string path = model.url.substr(at + end.size());
    urls[path] = model.url;
    files[path] = model.size;
  }
  if (!reference->path.empty() || (reference->tag.empty() && urls.contains(""))) return urls[""];
  std::vector<HubModel> found;  // split models are one entry
  for (const auto& [path, size] : files) {
    if (models_among({{path, size}}).size() == 1) found.push_back({path, size});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const HubModel& a, const HubModel& b) { return a.bytes < b.bytes; });
  const std::optional<HubModel> model = choose(found, reference->tag);
  return model ? urls[model->path] : std::string();
}

Result<std::string> model_source(const std::string& given, const io::OpenOptions& options) {
  if (!HubReference::is_one(given)) return given;
  const Result<HubReference> reference = HubReference::parse(given);
  if (!reference.ok()) return reference.status();
  if (!reference->path.empty()) {
    return reference->url(options.credentials.hub, reference->path);
  }
  Result<std::string> found = find(*reference, options);
  if (found.ok() || found.status().code() != Code::kNetwork) return found;
  Result<std::string> cached = cached_model(given, io::cached_models(options.cache_dir));
  if (!cached.ok() || cached->empty()) return found.status();
  return cached;
}

}  // namespace sluice::native
