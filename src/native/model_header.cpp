// Feeds files to the opener, and adds the tensors that other formats do not store.
#include "native/model_header.h"

#include "io/address.h"
#include "native/foreign_qsf.h"
#include "native/hugging_face.h"
#include "native/tensor_transform_source.h"
#include "platform/file.h"
#include "pytorch/torch_source.h"
#include "qsf/index.h"

namespace sluice::native {
namespace {

bool is_url(const std::string& path) {
  return path.rfind("http://", 0) == 0 || path.rfind("https://", 0) == 0;
}

// Computed bytes, presented as a file of the model.
class OwnedSource final : public io::ByteSource {
 public:
  explicit OwnedSource(std::span<const uint8_t> bytes)
      : bytes_(bytes.begin(), bytes.end()), view_(io::open_memory(bytes_)) {}
  [[nodiscard]] uint64_t size() const override { return view_->size(); }
  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override {
    return view_->read(offset, out);
  }

 private:
  std::vector<uint8_t> bytes_;
  std::unique_ptr<io::ByteSource> view_;
};

// Whether an error means that the file does not exist. Servers report that as 401, 403, 404 or 410.
bool says_absent(const Status& status) {
  // A server may have a web page for every path.
  if (status.code() == Code::kNotFound || status.code() == Code::kNotGguf) return true;
  if (status.code() != Code::kHttpStatus) return false;
  for (const char* code : {" 401", " 403", " 404", " 410"}) {
    if (status.message().ends_with(code)) return true;
  }
  return false;
}

Status read_into(open::Opener& opener, io::ByteSource& source, uint64_t offset, uint64_t length) {
  Result<std::span<uint8_t>> place = opener.reserve(length);
  if (!place.ok()) return place.status();
  SLUICE_RETURN_IF_ERROR(source.read(offset, *place));
  return opener.supply();
}

Status answer(const open::FileRequest& need, const pytorch::OpenFile& open_file, ModelHeader* out) {
  open::Opener& opener = *out->opener;
  if (need.want == open::FileRequestKind::kBytes) {
    return read_into(opener, *out->sources[need.file], need.offset, need.length);
  }
  Result<std::unique_ptr<io::ByteSource>> source = open_file(need.name);
  out->offline = out->offline || (source.ok() && (*source)->offline());
  if (need.want == open::FileRequestKind::kText) {
    if (source.ok()) return read_into(opener, **source, 0, (*source)->size());
    // Offline, an optional file that is not in the cache is missing.
    const bool away = out->offline && need.optional && source.status().code() == Code::kNetwork;
    return away || says_absent(source.status()) ? opener.absent(source.status().message())
                                                : source.status();
  }
  if (!source.ok()) return source.status();
  out->sources.push_back(std::move(*source));
  out->addresses.push_back(need.name);
  return opener.opened(out->sources.back()->size());
}

// Adds one more file for tensors that must be transformed from the checkpoint's files.
Status add_derived(ModelHeader* out) {
  std::vector<hf::Derived>& runs = out->opener->derived();
  if (runs.empty()) return {};
  std::vector<io::ByteSource*> files;
  for (const auto& source : out->sources) files.push_back(source.get());
  Result<std::unique_ptr<TensorTransformSource>> made =
      TensorTransformSource::open(std::move(runs), std::move(files));
  if (!made.ok()) return made.status();
  out->held += (*made)->memory();
  out->sources.push_back(std::move(*made));
  return {};
}

// Reads the tokenizer for a QSF file that has none, from a tokenizer.json or another model.
Result<ModelHeader> read_foreign(ModelHeader out, const io::OpenOptions& options) {
  TokenizerSource tokenizer;
  ModelHeader model;
  if (options.tokenizer.ends_with(".json")) {
    const Result<std::unique_ptr<io::ByteSource>> file =
        io::open_source(options.tokenizer, options);
    if (!file.ok()) return file.status();
    if ((*file)->size() > open::kMaxSmallFile) {
      return error(Code::kBadTokenizer, "the file of --tokenizer is too large");
    }
    tokenizer.json.resize((*file)->size());
    SLUICE_RETURN_IF_ERROR((*file)->read(
        0, {reinterpret_cast<uint8_t*>(tokenizer.json.data()), tokenizer.json.size()}));
  } else if (!options.tokenizer.empty()) {
    io::OpenOptions plain = options;
    plain.tokenizer.clear();
    Result<ModelHeader> read = read_header(options.tokenizer, plain);
    if (!read.ok()) return read.status();
    model = std::move(*read);
    tokenizer.header = &model.header;
  }
  Result<ForeignQsf> made = read_foreign_qsf(std::move(out.sources[0]), tokenizer);
  if (!made.ok()) return made.status();
  out.header = std::move(made->header);
  out.held = made->source->memory();
  out.decompression = made->source->decompression();
  out.sources[0] = std::move(made->source);
  return out;
}

// Makes the source of a QSF file verify and unpack layers, and gather experts.
Status unpack_qsf(ModelHeader* out) {
  io::ByteSource& file = *out->sources[0];
  std::vector<qsf::Run>& runs = out->opener->qsf_runs();
  Result<qsf::Experts> experts = read_experts(file, out->header);
  if (!experts.ok()) return experts.status();
  runs.insert(runs.end(), experts->records.begin(), experts->records.end());
  SLUICE_RETURN_IF_ERROR(qsf::check_places(runs, file.size()));
  Result<std::unique_ptr<QsfSource>> unpacked =
      QsfSource::open(std::move(out->sources[0]), std::move(runs));
  if (!unpacked.ok()) return unpacked.status();
  out->held = (*unpacked)->memory();
  out->decompression = (*unpacked)->decompression();
  out->sources[0] = std::move(*unpacked);
  if (experts->tensors.empty()) return {};
  auto gathered =
      std::make_unique<ExpertSource>(std::move(out->sources[0]), std::move(experts->tensors));
  out->held += gathered->memory();
  out->sources[0] = std::move(gathered);
  return {};
}

Result<ModelHeader> read_header(open::Source from, const pytorch::OpenFile& open_file,
                                const io::OpenOptions& options) {
  ModelHeader out;
  out.opener = std::make_unique<open::Opener>(std::move(from));
  for (;;) {
    Result<open::FileRequest> need = out.opener->need();
    if (!need.ok()) {
      if (out.sources.size() == 1 && is_foreign_qsf(*out.sources[0])) {
        return read_foreign(std::move(out), options);
      }
      return need.status();
    }
    if (need->want == open::FileRequestKind::kDone) break;
    SLUICE_RETURN_IF_ERROR(answer(*need, open_file, &out));
  }
  out.header = std::move(out.opener->header());
  if (!out.opener->qsf_runs().empty()) SLUICE_RETURN_IF_ERROR(unpack_qsf(&out));
  const std::span<const uint8_t> made = out.opener->synthesized_file();
  if (!made.empty()) out.sources.push_back(std::make_unique<OwnedSource>(made));
  SLUICE_RETURN_IF_ERROR(add_derived(&out));
  return out;
}

// An error about a model's contents, with the model's name.
Status about(const std::string& model, const Status& status) {
  const std::string& message = status.message();
  const std::string name = is_url(model) ? io::public_address(model) : model;
  if (message.find(name) == std::string::npos) {
    return error(status.code(), "%.256s: %s", name.c_str(), message.c_str());
  }
  const bool library = status.code() == Code::kNotFound &&
                       model.find_first_of("/\\") == std::string::npos && !model.ends_with(".gguf");
  if (!library) return status;
  return error(status.code(), "%s; a model is a file, a directory, a URL or hf:OWNER/REPO",
               message.c_str());
}

Result<ModelHeader> read_source(const std::string& given, const io::OpenOptions& options,
                                bool projector) {
  const Result<std::string> found = model_source(given, options);
  if (!found.ok()) return found.status();
  const std::string path = is_url(*found) ? *found : platform::with_slashes(*found);
  const pytorch::OpenFile open_file = [&options](const std::string& name) {
    return io::open_source(name, options);
  };
  const bool remote = is_url(path);
  uint64_t held = 0;
  Result<ModelHeader> out = read_header(
      open::Source{path, platform::is_directory(path), {}, 0, projector},
      [&](const std::string& name) {
        return remote ? open_file(name) : pytorch::open_checkpoint(open_file, name, &held);
      },
      options);
  if (!out.ok()) return about(given, out.status());
  out->remote = remote;
  out->held += held;
  out->direct_io = options.direct_io;
  out->no_page_cache = options.no_page_cache;
  out->join_reads = options.join_reads;
  return out;
}

}  // namespace

Result<ModelHeader> read_header(const std::string& given, const io::OpenOptions& options) {
  return read_source(given, options, /*projector=*/false);
}

Result<ModelHeader> read_projector_header(const std::string& given,
                                          const io::OpenOptions& options) {
  return read_source(given, options, /*projector=*/true);
}

Result<ModelHeader> read_header(std::unique_ptr<io::ByteSource> file) {
  return read_header(open::Source{"", false, {"model.gguf"}},
                     [&file](const std::string&) { return std::move(file); }, {});
}

}  // namespace sluice::native
