// Loads a GGUF or QSF file: its header, then the headers of the other files if the model is split.
// Also loads a header that gguf::write_placed made for a model's files.
#include "gguf/write.h"
#include "open/address.h"
#include "open/header_loader.h"

namespace sluice::open {
namespace {

struct FileLoader final : HeaderLoader {
  explicit FileLoader(Source from) : HeaderLoader(std::move(from)) {
    if (!source.names.empty()) first = chosen(first_part(base_name(source.names[0]))).value_or(0);
  }

  Status next() override {
    if (files.size() > n_parsed) return in_part(want_bytes());
    return n_parsed < n_parts ? want_part() : want(FileRequestKind::kDone, {}, 0);
  }
  Status take() override { return in_part(parse()); }
  uint64_t first_bytes(uint64_t size) const override {
    if (source.described > 0) return size;
    const uint64_t most = files.empty() ? kMaxFirstBytes : kMinFirstBytes;
    return std::clamp(size / 16, kMinFirstBytes, most);
  }
  const char* reading() const override { return "the file"; }
  Status missing(std::string_view why) const override;

  Status want_part();
  Status parse();
  Status parse_qsf();
  [[nodiscard]] std::string part_name() const;
  [[nodiscard]] Status in_part(const Status& status) const;

  uint32_t first = 0;  // of the chosen files, the first part
  uint32_t n_parts = 1;
};

// The name of the file that is opened or read next; "" if it cannot be derived.
std::string FileLoader::part_name() const {
  const std::string& name = source.names.empty() ? source.address : source.names[first];
  return n_parsed == 0 ? name : split_name(name, n_parsed, n_parts);
}

// Adds the file's name to errors of later files.
Status FileLoader::in_part(const Status& status) const {
  if (status.ok() || n_parsed == 0) return status;
  const std::string name = part_name();
  return error(status.code(), "%.80s: %s", std::string(base_name(name)).c_str(),
               status.message().c_str());
}

Status FileLoader::missing(std::string_view why) const {
  return error(Code::kNotFound, "%.80s is missing: %.300s",
               std::string(base_name(need.name)).c_str(), std::string(why).c_str());
}

Status FileLoader::want_part() {
  std::string name = part_name();
  uint32_t choice = first;
  if (n_parsed > 0 && !source.names.empty()) {  // without such names, the files' order counts
    choice = name.empty() ? n_parsed : chosen(base_name(name)).value_or(UINT32_MAX);
    if (choice >= source.names.size()) {
      return error(Code::kNotFound, "part %u of %u of the model is not among the chosen files",
                   n_parsed + 1, n_parts);
    }
    name = source.names[choice];
  } else if (n_parsed > 0 && name.empty()) {
    return error(Code::kInvalidArgument,
                 "the model has %u files but the name of the first does not end in "
                 "-00001-of-%05u.gguf",
                 n_parts, n_parts);
  }
  return want(FileRequestKind::kFile, std::move(name), choice);
}

Status FileLoader::parse() {
  File& file = files[n_parsed];
  if (source.described > 0) {
    SLUICE_RETURN_IF_ERROR(gguf::parse_placed(file.prefix.bytes(), source.described, &header));
    ++n_parsed;
    return {};
  }
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

Status FileLoader::parse_qsf() {
  File& file = files[0];
  const Result<gguf::ParseProgress> parsed =
      qsf::parse(file.prefix.bytes(), file.size, &header, &runs);
  if (!parsed.ok()) return parsed.status();
  if (!parsed->done) return ask_for(parsed->need_bytes);
  ++n_parsed;
  return {};
}

}  // namespace

std::unique_ptr<HeaderLoader> file_loader(Source source) {
  return std::make_unique<FileLoader>(std::move(source));
}

Opener Opener::of_file(Source source) {
  return Opener(file_loader(std::move(source)));
}

}  // namespace sluice::open
