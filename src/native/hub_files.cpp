// Reads references and file names by hand: std::regex throws.
#include "native/hub_files.h"

#include <algorithm>
#include <cstring>

#include "open/address.h"

namespace sluice::native {
namespace {

constexpr size_t kMaxReference = 1024;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_letter(char c) {
  const char small = static_cast<char>(c | 0x20);
  return small >= 'a' && small <= 'z';
}

bool is_separator(char c) {
  return c == '-' || c == '.' || c == '_' || c == '/';
}

bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return is_digit(c) || is_letter(c) || c == '-' || c == '.' || c == '_';
  });
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

// Whether `word` is in `text`, with a separator or an end on both sides. Both in capital letters.
bool has_word(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || is_separator(text[at - 1]);
    if (begins && (end == text.size() || is_separator(text[end]))) return true;
  }
  return false;
}

// Percent-encodes what encodeURIComponent() does, except slashes if they separate.
std::string encoded(std::string_view text, bool keep_slashes) {
  constexpr std::string_view kPlain = "-_.!~*'()";
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_digit(c) || is_letter(c) || kPlain.find(c) != kPlain.npos ||
        (keep_slashes && c == '/')) {
      out += c;
    } else {
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

// The end of a quantization that begins at `at`, or `at`. Capital letters.
size_t quantization_end(std::string_view name, size_t at) {
  const auto ends = [name](size_t end) { return end == name.size() || is_separator(name[end]); };
  size_t end = at + (name[at] == 'I' ? 1 : 0), best = at;
  if (end + 1 < name.size() && name[end] == 'Q' && is_digit(name[end + 1])) {
    for (++end; end < name.size() && is_digit(name[end]);) ++end;
    if (ends(end)) best = end;
    while (end + 1 < name.size() && name[end] == '_' &&
           (is_digit(name[end + 1]) || is_letter(name[end + 1]))) {
      for (++end; end < name.size() && (is_digit(name[end]) || is_letter(name[end]));) ++end;
      if (ends(end)) best = end;
    }
    return best;
  }
  const std::string_view rest = name.substr(at);
  if (rest.size() >= 5 && rest.starts_with("TQ") && is_digit(rest[2]) && rest[3] == '_' &&
      is_digit(rest[4]) && ends(at + 5)) {
    return at + 5;
  }
  for (const std::string_view known :
       {"BF16", "F16", "FP16", "F32", "FP32", "MXFP4_MOE", "MXFP4"}) {
    if (rest.starts_with(known) && ends(at + known.size())) return at + known.size();
  }
  return at;
}

bool ends_in_gguf(std::string_view path) {
  return upper(path).ends_with(".GGUF");
}

bool is_other(std::string_view path) {
  const std::string text = upper(path);
  for (const char* word : {"MMPROJ", "IMATRIX", "VOCAB", "PROJECTOR", "ADAPTER", "CONTROL-VECTOR",
                           "CONTROL_VECTOR", "CONTROLVECTOR"}) {
    if (has_word(text, word)) return true;
  }
  return false;
}

}  // namespace

Result<HubReference> HubReference::parse(const std::string& text) {
  HubReference out;
  std::string_view rest = std::string_view(text).substr(3);
  if (rest.starts_with("//")) rest.remove_prefix(2);
  bool good = text.size() <= kMaxReference && rest.find_first_of("?#") == rest.npos;
  if (const size_t at = rest.find('@'); at != rest.npos) {
    out.revision = rest.substr(at + 1);
    rest = rest.substr(0, at);
    good = good && !out.revision.empty();
  }
  const size_t slash = rest.find('/');
  const size_t end = slash == rest.npos ? rest.npos : rest.find_first_of(":/", slash + 1);
  out.repository = rest.substr(0, end);
  good = good && slash != rest.npos && is_word(rest.substr(0, slash)) &&
         is_word(std::string_view(out.repository).substr(slash + 1));
  if (good && end != rest.npos) {
    const bool tagged = rest[end] == ':';
    (tagged ? out.tag : out.path) = rest.substr(end + 1);
    good = !tagged || is_word(out.tag);
  }
  const std::string steps = "/" + out.repository + "/" + out.path + "/";
  if (!good || steps.find("/../") != steps.npos || steps.find("/./") != steps.npos) {
    return error(Code::kInvalidArgument,
                 "\"%.200s\" is not like hf:owner/repo[:Q4_K_M][@revision] or "
                 "hf:owner/repo/file.gguf[@revision]",
                 text.c_str());
  }
  return out;
}

std::string HubReference::url(const std::string& hub, const std::string& file) const {
  return hub + "/" + repository + "/resolve/" + encoded(revision, false) + "/" +
         encoded(file, true);
}

std::string HubReference::list_url(const std::string& hub) const {
  return hub + "/api/models/" + repository + "/tree/" + encoded(revision, false) +
         "?recursive=true";
}

std::string quantization_of(std::string_view path) {
  std::string name = upper(path);
  if (name.ends_with(".GGUF")) name.resize(name.size() - 5);
  std::string found;
  for (size_t at = 0; at < name.size();) {
    const bool begins = at == 0 || is_separator(name[at - 1]);
    const size_t end = begins ? quantization_end(name, at) : at;
    if (end > at) found = name.substr(at, end - at);
    at = std::max(end, at + 1);
  }
  return found.starts_with("FP") ? "F" + found.substr(2) : found;
}

std::vector<HubModel> models_among(const std::map<std::string, uint64_t>& files) {
  std::map<std::string, uint64_t> models;
  for (const auto& [path, bytes] : files) {
    if (!ends_in_gguf(path) || is_other(path)) continue;
    const std::string first = open::first_part(path);
    if (!first.empty() && !files.contains(first)) continue;
    models[first.empty() ? path : first] += bytes;
  }
  std::vector<HubModel> out;
  for (const auto& [path, bytes] : models) out.push_back({path, bytes});
  std::stable_sort(out.begin(), out.end(),
                   [](const HubModel& a, const HubModel& b) { return a.bytes < b.bytes; });
  return out;
}

std::optional<HubModel> choose(const std::vector<HubModel>& models, const std::string& tag) {
  const auto quantized = [&models](std::string_view name) -> const HubModel* {
    const auto found = std::find_if(models.begin(), models.end(), [name](const HubModel& model) {
      const std::string first = open::first_part(model.path);
      constexpr size_t kSuffix = sizeof "-00001-of-00002.gguf" - 1;
      const std::string_view path = model.path;
      return quantization_of(first.empty() ? path : path.substr(0, path.size() - kSuffix)) == name;
    });
    return found == models.end() ? nullptr : &*found;
  };
  if (tag.empty()) {
    for (const char* name : {"Q4_K_M", "Q4_0", "Q4_K_S", "Q5_K_M", "Q8_0", "IQ4_XS"}) {
      if (const HubModel* model = quantized(name)) return *model;
    }
    return models.empty() ? std::nullopt : std::optional(models[0]);
  }
  const std::string wanted = upper(tag);
  if (const HubModel* model = quantized(wanted)) return *model;
  for (const HubModel& model : models) {
    if (has_word(upper(model.path), wanted)) return model;
  }
  return std::nullopt;
}

std::optional<std::string> choose_projector(const std::vector<std::string>& names,
                                            std::string_view model) {
  constexpr std::string_view kWord = "mmproj", kEnd = ".gguf";
  const auto file_of = [](std::string_view path) { return path.substr(path.rfind('/') + 1); };
  std::string_view stem = file_of(model);
  if (stem.ends_with(kEnd)) stem.remove_suffix(kEnd.size());
  // The name that both begin with: "a-Q8_0.gguf" has "a.mmproj.gguf", and rather
  // "a-Q8_0.mmproj.gguf".
  const auto shared = [&](std::string_view name) -> size_t {
    const size_t word = name.find(kWord), n = word == name.npos || word == 0 ? 0 : word - 1;
    const bool ends =
        n == stem.size() || (n < stem.size() && std::strchr("-._", stem[n]) != nullptr);
    return ends && stem.starts_with(name.substr(0, n)) ? n : 0;
  };
  constexpr std::string_view kOrder[] = {"F16", "BF16", "Q8_0"};
  std::optional<std::string> best;
  size_t best_rank = SIZE_MAX;
  for (const std::string& path : names) {
    const std::string_view name = file_of(path);
    const size_t same = shared(name);
    const bool any = stem.empty() && name.find(kWord) != name.npos;
    const bool plain = name.starts_with(kWord);
    if (!name.ends_with(kEnd) || !(same > 0 || plain || any)) continue;
    const auto* const order =
        std::find(std::begin(kOrder), std::end(kOrder), quantization_of(name));
    const size_t rank = 8 * (stem.size() - same) + (plain || same > 0 ? 0 : 4) +
                        static_cast<size_t>(order - std::begin(kOrder));
    if (rank > best_rank || (rank == best_rank && path >= *best)) continue;
    best = path;
    best_rank = rank;
  }
  return best;
}

}  // namespace sluice::native
