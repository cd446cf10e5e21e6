// The opener, and the steps that the loaders share.
#include "open/opener.h"

#include "open/address.h"
#include "open/header_loader.h"

namespace sluice::open {
namespace {

Status no_answer() {
  return error(Code::kInvalidArgument, "the call does not answer the opener's request");
}

}  // namespace

// --- shared steps of the loaders

Status no_memory(uint64_t bytes) {
  return error(Code::kOutOfMemory, "the model's header needs %llu bytes, which are not available",
               static_cast<unsigned long long>(bytes));
}

std::optional<uint32_t> HeaderLoader::chosen(std::string_view name) const {
  for (size_t i = 0; i < source.names.size() && !name.empty(); i++) {
    if (base_name(source.names[i]) == name) return static_cast<uint32_t>(i);
  }
  return {};
}

Status HeaderLoader::want(FileRequestKind what, std::string name, uint32_t choice) {
  need.want = what;
  need.file = static_cast<uint32_t>(what == FileRequestKind::kFile ? files.size() : n_parsed);
  need.name = std::move(name);
  need.choice = choice;
  return {};
}

Status HeaderLoader::truncated() const {
  return error(Code::kTruncated, "%s ends inside its header", reading());
}

Status HeaderLoader::want_bytes() {
  File& file = files[n_parsed];
  if (file.wanted == 0) return truncated();
  uint64_t held = 0;
  for (const File& f : files) held += f.prefix.bytes().size();
  need.offset = file.prefix.bytes().size();
  need.length = file.wanted - need.offset;
  if (held + need.length > gguf::kMaxHeaderBytes) {
    return error(Code::kBadHeader, "the headers of the model's files have more than %llu bytes",
                 static_cast<unsigned long long>(gguf::kMaxHeaderBytes));
  }
  into = &file.prefix;
  return want(FileRequestKind::kBytes, {}, 0);
}

Status HeaderLoader::ask_for(uint64_t bytes) {
  File& file = files[n_parsed];
  if (bytes <= file.wanted || file.wanted >= file.size) return truncated();
  file.wanted = std::min(bytes, file.size);
  return {};
}

// --- the opener

Opener::Opener(std::unique_ptr<HeaderLoader> loader) : loader_(std::move(loader)) {
  loader_->advance();
}

Opener::~Opener() = default;

Result<FileRequest> Opener::need() const {
  if (!loader_->failure.ok()) return loader_->failure;
  return loader_->need;
}

Status Opener::opened(uint64_t size) {
  HeaderLoader& c = *loader_;
  if (!c.failure.ok() || c.need.want != FileRequestKind::kFile) return no_answer();
  const uint64_t wanted = std::min(size, c.first_bytes(size));
  File& file = c.files.emplace_back();
  file.size = size;
  file.wanted = wanted;
  c.advance();
  return {};
}

Status Opener::absent(std::string_view why) {
  HeaderLoader& c = *loader_;
  const FileRequestKind want = c.need.want;
  if (!c.failure.ok() || (want != FileRequestKind::kFile && want != FileRequestKind::kText))
    return no_answer();
  if (want == FileRequestKind::kText && c.need.optional) {
    c.reserved = false;
    c.skip();
    c.advance();
  } else {
    c.failure = c.missing(why);
  }
  return {};
}

Result<std::span<uint8_t>> Opener::reserve(uint64_t size) {
  HeaderLoader& c = *loader_;
  const bool text = c.need.want == FileRequestKind::kText;
  if (!c.failure.ok() || (!text && c.need.want != FileRequestKind::kBytes)) return no_answer();
  if (!text && size != c.need.length) return no_answer();
  if (text && size > kMaxSmallFile) {
    return error(Code::kBadHeader, "%.80s is too large (%llu bytes)",
                 std::string(base_name(c.need.name)).c_str(),
                 static_cast<unsigned long long>(size));
  }
  if (!c.into->grow(c.need.offset + size)) return no_memory(size);
  c.reserved = true;
  return c.into->bytes().subspan(static_cast<size_t>(c.need.offset));
}

Status Opener::supply() {
  HeaderLoader& c = *loader_;
  if (!c.failure.ok() || !c.reserved) return no_answer();
  c.reserved = false;
  c.failure = c.take();
  c.advance();
  return {};
}

gguf::Header& Opener::header() {
  return loader_->header;
}

std::vector<qsf::Run>& Opener::qsf_runs() {
  return loader_->runs;
}

std::span<const uint8_t> Opener::synthesized_file() const {
  return {reinterpret_cast<const uint8_t*>(loader_->made.data()), loader_->made.size()};
}

std::vector<hf::Derived>& Opener::derived() {
  return loader_->derived;
}

}  // namespace sluice::open
