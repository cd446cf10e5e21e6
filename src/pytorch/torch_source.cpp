// Finds the members of the zip archive, then reads the tensors' descriptions from data.pkl.
#include "pytorch/torch_source.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "hf/json.h"
#include "open/address.h"
#include "open/opener.h"
#include "pytorch/pickle.h"
#include "pytorch/zip.h"

namespace sluice::pytorch {
namespace {

constexpr std::string_view kSafetensors = ".safetensors";

Result<std::vector<uint8_t>> read_part(io::ByteSource& file, uint64_t offset, uint64_t bytes) {
  std::vector<uint8_t> out(static_cast<size_t>(bytes));
  SLUICE_RETURN_IF_ERROR(file.read(offset, out));
  return out;
}

// Members of the archive by their names within its folder, with the offset of their data.
class Archive {
 public:
  struct Member {
    uint64_t offset = 0, bytes = 0;
  };

  Status open(io::ByteSource& file, const char* name) {
    const uint64_t size = file.size(), n = std::min(size, kZipTail);
    const Result<std::vector<uint8_t>> tail = read_part(file, size - n, n);
    if (!tail.ok()) return tail.status();
    const Result<ZipDirectory> found = find_zip_directory(*tail, size, name);
    if (!found.ok()) return found.status();
    const Result<std::vector<uint8_t>> bytes = read_part(file, found->offset, found->bytes);
    if (!bytes.ok()) return bytes.status();
    const Result<std::vector<ZipMember>> members = parse_zip_directory(*bytes, *found, name);
    if (!members.ok()) return members.status();
    for (const ZipMember& member : *members) {
      if (member.header > found->offset || found->offset - member.header < kZipLocalHeader) {
        return error(Code::kBadHeader,
                     "%s: a member of the zip archive is not at the offset in its directory", name);
      }
      uint8_t local[kZipLocalHeader];
      SLUICE_RETURN_IF_ERROR(file.read(member.header, local));
      const Result<uint64_t> at = find_zip_member(local, member, *found, name);
      if (!at.ok()) return at.status();
      // "archive/data/7": the folder is named after the file as it was saved.
      const size_t slash = member.name.find('/');
      members_[slash == std::string::npos ? member.name : member.name.substr(slash + 1)] = {
          *at, member.bytes};
    }
    return {};
  }
  [[nodiscard]] const Member* find(const std::string& name) const {
    const auto found = members_.find(name);
    return found == members_.end() ? nullptr : &found->second;
  }

 private:
  std::map<std::string, Member> members_;
};

// Translates pytorch_model.bin.index.json to a safetensors index.
Result<std::string> translate_index(std::string_view text) {
  class Shards final : public hf::JsonVisitor {
   public:
    bool scalar(const hf::JsonPath& path, const hf::JsonScalar& value) override {
      if (path.size() != 2 || path[0] != "weight_map") return true;
      const std::string name(value.text);
      const bool plain = name.ends_with(".bin") && name.find_first_of("\"\\") == std::string::npos;
      if (plain) names.insert(name);
      return plain && names.size() <= gguf::kMaxSplits;
    }
    std::set<std::string> names;
  } shards;
  const Result<bool> walked = hf::walk_json(text, "pytorch_model.bin.index.json", &shards);
  if (!walked.ok()) return walked.status();
  if (!*walked || shards.names.empty()) {
    return error(Code::kBadHeader, "pytorch_model.bin.index.json must name .bin files only");
  }
  std::string out = R"({"weight_map":{)";
  for (const std::string& name : shards.names) {
    if (out.back() != '{') out += ',';
    out.append("\"").append(name).append("\":\"").append(name).append(kSafetensors).append("\"");
  }
  return out + "}}";
}

class TextSource final : public io::ByteSource {
 public:
  explicit TextSource(std::string text) : text_(std::move(text)) {}
  [[nodiscard]] uint64_t size() const override { return text_.size(); }
  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override {
    if (offset > text_.size() || out.size() > text_.size() - offset) {
      return error(Code::kTruncated, "a read goes past the end of the file");
    }
    std::copy_n(text_.begin() + static_cast<ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  }

 private:
  std::string text_;
};

// The path of `file` in the directory of `name`, whose last part is `base`.
std::string beside(const std::string& name, std::string_view base, std::string_view file) {
  return name.substr(0, static_cast<size_t>(base.data() - name.data())).append(file);
}

Result<std::unique_ptr<io::ByteSource>> open_torch(const OpenFile& open, const std::string& path,
                                                   std::string_view name, uint64_t* held) {
  Result<std::unique_ptr<io::ByteSource>> file = open(path);
  if (!file.ok()) return file;
  Result<std::unique_ptr<TorchSource>> source =
      TorchSource::open(std::move(*file), std::string(name).c_str());
  if (!source.ok()) return source.status();
  *held += (*source)->memory();
  return std::unique_ptr<io::ByteSource>(std::move(*source));
}

Result<std::unique_ptr<io::ByteSource>> open_index(const OpenFile& open, const std::string& path) {
  Result<std::unique_ptr<io::ByteSource>> file = open(path);
  if (!file.ok()) return file;
  if ((*file)->size() > open::kMaxSmallFile) {
    return error(Code::kBadHeader, "pytorch_model.bin.index.json is too large");
  }
  const Result<std::vector<uint8_t>> text = read_part(**file, 0, (*file)->size());
  if (!text.ok()) return text.status();
  Result<std::string> translated =
      translate_index({reinterpret_cast<const char*>(text->data()), text->size()});
  if (!translated.ok()) return translated.status();
  return std::unique_ptr<io::ByteSource>(new TextSource(std::move(*translated)));
}

}  // namespace

Result<std::unique_ptr<TorchSource>> TorchSource::open(std::unique_ptr<io::ByteSource> file,
                                                       const char* name) {
  std::unique_ptr<TorchSource> out(new TorchSource(std::move(file)));
  SLUICE_RETURN_IF_ERROR(out->describe(name));
  return out;
}

Status TorchSource::describe(const char* name) {
  Archive archive;
  SLUICE_RETURN_IF_ERROR(archive.open(*file_, name));
  const Archive::Member* pickle = archive.find("data.pkl");
  if (pickle == nullptr || pickle->bytes > kMaxPickleBytes) {
    return error(Code::kBadHeader, "%s: its data.pkl is missing or too large", name);
  }
  if (const Archive::Member* order = archive.find("byteorder"); order != nullptr) {
    const Result<std::vector<uint8_t>> text =
        read_part(*file_, order->offset, std::min<uint64_t>(order->bytes, 16));
    if (!text.ok()) return text.status();
    if (std::string_view(reinterpret_cast<const char*>(text->data()), text->size()) != "little") {
      return error(Code::kUnsupportedType, "%s: its bytes are not in little-endian order", name);
    }
  }
  const Result<std::vector<uint8_t>> bytes = read_part(*file_, pickle->offset, pickle->bytes);
  if (!bytes.ok()) return bytes.status();
  const Result<std::vector<PickledTensor>> tensors = parse_pickle(*bytes, name);
  if (!tensors.ok()) return tensors.status();

  std::string json = "{";
  uint64_t at = 0;
  for (const PickledTensor& t : *tensors) {
    const Archive::Member* storage = archive.find("data/" + t.storage);
    if (storage == nullptr || t.end > storage->bytes) {
      return error(Code::kTruncated, "%s: the storage of the tensor \"%s\" is missing or too short",
                   name, t.name.c_str());
    }
    const uint64_t n = t.end - t.begin;
    json.append(json.size() > 1 ? "," : "").append("\"").append(t.name);
    json.append(R"(":{"dtype":")").append(t.dtype).append(R"(","shape":[)");
    for (size_t i = 0; i < t.shape.size(); ++i) {
      json.append(i > 0 ? "," : "").append(std::to_string(t.shape[i]));
    }
    json.append(R"(],"data_offsets":[)").append(std::to_string(at)).append(",");
    json.append(std::to_string(at + n)).append("]}");
    parts_.push_back({at, n, storage->offset + t.begin});
    at += n;
  }
  json += "}";
  const uint64_t length = json.size();
  directory_.assign(reinterpret_cast<const char*>(&length), sizeof length);
  directory_ += json;
  return {};
}

uint64_t TorchSource::size() const {
  const uint64_t tensors = parts_.empty() ? 0 : parts_.back().begin + parts_.back().bytes;
  return directory_.size() + tensors;
}

Status TorchSource::read(uint64_t offset, std::span<uint8_t> out) {
  if (offset > size() || out.size() > size() - offset) {
    return error(Code::kTruncated, "a read goes past the end of the file");
  }
  if (offset < directory_.size()) {
    const size_t n = std::min<size_t>(out.size(), directory_.size() - static_cast<size_t>(offset));
    std::memcpy(out.data(), directory_.data() + offset, n);
    out = out.subspan(n);
    offset += n;
  }
  if (out.empty()) return {};
  offset -= directory_.size();
  auto part = std::upper_bound(parts_.begin(), parts_.end(), offset,
                               [](uint64_t at, const Part& p) { return at < p.begin + p.bytes; });
  for (; !out.empty(); ++part) {
    const uint64_t from = offset - part->begin;
    const size_t n = static_cast<size_t>(std::min<uint64_t>(out.size(), part->bytes - from));
    SLUICE_RETURN_IF_ERROR(file_->read(part->offset + from, out.first(n)));
    out = out.subspan(n);
    offset += n;
  }
  return {};
}

Result<std::unique_ptr<io::ByteSource>> open_checkpoint(const OpenFile& open,
                                                        const std::string& name, uint64_t* held) {
  const std::string_view base = open::base_name(name);
  if (base.ends_with(".bin.safetensors")) {
    const std::string_view own = base.substr(0, base.size() - kSafetensors.size());
    return open_torch(open, beside(name, base, own), own, held);
  }
  Result<std::unique_ptr<io::ByteSource>> file = open(name);
  if (file.ok() || file.status().code() != Code::kNotFound) return file;
  const bool index = base == "model.safetensors.index.json";
  if (!index && base != "model.safetensors") return file;
  if (index && open(beside(name, base, "model.safetensors")).ok()) return file;
  const std::string torch = index ? "pytorch_model.bin.index.json" : "pytorch_model.bin";
  const std::string path = beside(name, base, torch);
  Result<std::unique_ptr<io::ByteSource>> other =
      index ? open_index(open, path) : open_torch(open, path, torch, held);
  return other.ok() || other.status().code() != Code::kNotFound ? std::move(other)
                                                                : std::move(file);
}

}  // namespace sluice::pytorch
