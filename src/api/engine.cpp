// Loading, inspecting and querying engines.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "api/handles.h"
#include "generate/draft_pair.h"
#include "io/credentials_native.h"
#include "io/default_cache_native.h"
#include "options/options.h"
#include "session/option_texts.h"

namespace sluice::api {
namespace {

using options::check;
using options::find;

// The table is below the modules whose limits it states.
static_assert(find("threads").most == kMaxThreads);
static_assert(find("n_ctx").most == model::kMaxContext);
static_assert(find("sessions").most == session::kMaxSessions);
static_assert(find("logits_rows").most == session::kMaxBatch);
static_assert(find("draft_max").most == draft::kMaxDraftTokens);

// Presents a caller's sluice_reader as a file.
class ReaderSource final : public io::ByteSource {
 public:
  explicit ReaderSource(const sluice_reader& reader) : reader_(reader) {}
  [[nodiscard]] uint64_t size() const override { return reader_.length; }
  [[nodiscard]] Status read(uint64_t offset, std::span<uint8_t> out) override {
    if (offset > reader_.length || out.size() > reader_.length - offset) {
      return error(
          Code::kTruncated, "a read at byte %llu goes past the end of the file (%llu bytes)",
          static_cast<unsigned long long>(offset), static_cast<unsigned long long>(reader_.length));
    }
    if (out.empty()) return {};
    std::unique_lock<std::mutex> lock(mutex_, std::defer_lock);
    if (reader_.serialize_reads != 0) lock.lock();
    const int32_t failed = reader_.read(reader_.user, offset, out.data(), out.size());
    if (failed == 0) return {};
    return error(Code::kIo, "the reader returned %d for %zu bytes at byte %llu", failed, out.size(),
                 static_cast<unsigned long long>(offset));
  }

 private:
  const sluice_reader reader_;
  std::mutex mutex_;
};

// Whether `draft` is a model's path instead of "ngram" or "nextn".
bool drafts_by_model(const sluice_load_options& given) {
  if (given.draft == nullptr) return false;
  const std::string_view name = given.draft;
  return name != "ngram" && name != "nextn";
}

sluice_load_options default_load_options() {
  sluice_load_options options = {};
  options.size = sizeof options;
  options.sessions = options.logits_rows = options.preload = 1;
  options.kv_sinks = -1;
  options.early_exit = 1;
  return options;
}

// Checks a number that has a special value for "not given".
Status check_unless(int32_t unset, const options::Option& option, int32_t value) {
  return value == unset ? Status() : check(option, value);
}

Result<io::Credentials> read_credentials(const sluice_load_options& given) {
  SLUICE_RETURN_IF_ERROR(check_array(given.headers, given.n_headers, "headers"));
  std::vector<std::string> headers;
  for (size_t i = 0; i < given.n_headers; ++i) {
    if (given.headers[i] == nullptr) return null_argument("headers[i]");
    headers.emplace_back(given.headers[i]);
  }
  const auto text = [](const char* of) { return std::string(text_or_none(of)); };
  return io::make_credentials(std::move(headers), text(given.token), text(given.hf_endpoint));
}

Result<native::LoadOptions> load_options(const sluice_load_options& given) {
  SLUICE_RETURN_IF_ERROR(check(find("threads"), given.threads));
  SLUICE_RETURN_IF_ERROR(check(find("n_ctx"), given.n_ctx));
  SLUICE_RETURN_IF_ERROR(check(find("sessions"), given.sessions));
  SLUICE_RETURN_IF_ERROR(check(find("logits_rows"), given.logits_rows));
  SLUICE_RETURN_IF_ERROR(check(find("structured_output"), given.structured_output));
  SLUICE_RETURN_IF_ERROR(check(find("preload"), given.preload));
  SLUICE_RETURN_IF_ERROR(check(find("time_breakdown"), given.time_breakdown));
  SLUICE_RETURN_IF_ERROR(check_unless(0, find("draft_max"), given.draft_max));
  SLUICE_RETURN_IF_ERROR(check_unless(-1, find("kv_sinks"), given.kv_sinks));
  SLUICE_RETURN_IF_ERROR(check_unless(0, find("kv_capacity"), given.kv_capacity));
  SLUICE_RETURN_IF_ERROR(options::check_budget(given.memory_budget));
  native::LoadOptions out;
  out.engine.memory_budget = given.memory_budget;
  out.engine.n_threads = given.threads;
  out.engine.n_ctx = given.n_ctx;
  out.engine.n_sessions = given.sessions;
  out.engine.logits_rows = given.logits_rows;
  out.engine.structured_output = given.structured_output != 0;
  out.engine.time_breakdown = given.time_breakdown != 0;
  if (given.draft != nullptr) out.engine.draft_max = given.draft_max > 0 ? given.draft_max : -1;
  out.engine.nextn = given.draft != nullptr && std::string_view(given.draft) == "nextn";
  if (given.kernels != nullptr) out.engine.kernels = given.kernels;
  SLUICE_RETURN_IF_ERROR(session::apply({.kv_type = text_or_none(given.kv_type),
                                         .kv_policy = text_or_none(given.kv_policy),
                                         .head_clusters = text_or_none(given.head_clusters),
                                         .kv_sinks = given.kv_sinks,
                                         .kv_capacity = given.kv_capacity},
                                        &out.engine));
  out.engine.approximate.skip_layers_ratio = given.skip_layers_ratio;
  out.engine.approximate.exits.confidence = given.early_exit;
  SLUICE_RETURN_IF_ERROR(check_array(given.adapters, given.n_adapters, "adapters"));
  for (size_t i = 0; i < given.n_adapters; ++i) {
    const sluice_adapter& adapter = given.adapters[i];
    if (adapter.path == nullptr) return null_argument("adapters[i].path");
    if (!std::isfinite(adapter.scale)) {
      return error(Code::kInvalidArgument, "an adapter's scale must be a finite number");
    }
    out.adapters.push_back({adapter.path, adapter.scale});
  }
  if (given.swap_directory != nullptr) {
    if (given.swap_directory[0] == '\0') {
      return error(Code::kInvalidArgument, "swap_directory is empty: pass null for no swapping");
    }
    out.engine.base_bytes += native::kSwapBytes;
  }
  Result<io::Credentials> credentials = read_credentials(given);
  if (!credentials.ok()) return credentials.status();
  out.source.credentials = std::move(*credentials);
  out.source.cache_dir =
      io::cache_directory(given.cache_directory == nullptr ? "" : given.cache_directory);
  if (given.on_warning != nullptr) {
    out.source.on_warning = [callback = given.on_warning, user = given.warning_user](
                                const std::string& text) { callback(user, text.c_str()); };
  }
  return out;
}

// Whether a pass can keep the logits that were asked for. A policy that evicts limits its length.
Status check_rows(const sluice_load_options& given, const session::MemoryPlan& plan) {
  if (plan.batch.n_batch == plan.context.n_ctx) return {};  // no pass is longer
  return check_range(given.logits_rows, 1, std::min(plan.batch.logits_rows, plan.batch.n_batch),
                     "logits_rows");
}

Status preload(native::Model& model, const sluice_load_options& given) {
  struct Loading {
    native::Model& model;
    const sluice_load_options& given;
  } loading{model, given};
  if (given.on_progress == nullptr) return model.preload();
  return model.preload(
      [](void* context, uint64_t loaded, uint64_t total) {
        const Loading& l = *static_cast<Loading*>(context);
        if (l.given.on_progress(l.given.progress_user, loaded, total) != 0) l.model.interrupt();
      },
      &loading);
}

Result<native::DraftPair> open_models(native::ModelHeader header, const sluice_load_options& given,
                                      const native::LoadOptions& how) {
  if (drafts_by_model(given)) {
    return native::open_pair(std::move(header), given.draft, how.engine, how.source);
  }
  Result<std::unique_ptr<native::Model>> model = native::Model::open(std::move(header), how.engine);
  if (!model.ok()) return model.status();
  native::warn_of_context((*model)->engine().plan(), how.source);
  native::DraftPair out;
  out.model = std::move(*model);
  return out;
}

// Loads the model whose header `read_header(options)` returns. `path`: "" for a reader.
template <typename ReadHeader>
Status load(const char* path, const sluice_load_options* options, sluice_engine** engine,
            ReadHeader&& read_header) {
  sluice_load_options given = default_load_options();
  if (options != nullptr) SLUICE_RETURN_IF_ERROR(read_struct(options, &given));
  Result<native::LoadOptions> how = load_options(given);
  if (!how.ok()) return how.status();
  how->source.credentials.model = path;
  Result<native::ModelHeader> header = read_header(how->source);
  if (!header.ok()) return header.status();
  chat::ModelTexts texts = chat::read_texts(header->header);
  const Result<native::AdapterFiles> adapters =
      native::AdapterFiles::open(how->adapters, how->source);
  if (!adapters.ok()) return adapters.status();
  how->engine.adapters = adapters->sources();
  std::unique_ptr<native::PictureFile> pictures;
  if (given.projector != nullptr) {
    auto opened = native::open_projector(given.projector, header->header, &*how);
    if (!opened.ok()) return opened.status();
    pictures = std::move(*opened);
  }
  Result<native::DraftPair> models = open_models(std::move(*header), given, *how);
  if (!models.ok()) return models.status();
  SLUICE_RETURN_IF_ERROR(check_rows(given, models->model->engine().plan()));
  for (native::Model* const model : {models->draft.get(), models->model.get()}) {
    if (given.preload == 0 || model == nullptr) continue;
    const Status status = preload(*model, given);
    if (model->interrupted()) return error(Code::kAborted, "the progress callback ended loading");
    SLUICE_RETURN_IF_ERROR(status);
  }
  auto loaded = std::make_shared<Loaded>(std::move(*models), std::move(texts));
  if (given.on_warning != nullptr) {
    loaded->on_warning = [callback = given.on_warning,
                          user = given.warning_user](const char* text) { callback(user, text); };
  }
  loaded->take_pictures(std::move(pictures));
  const char* swap_to = given.swap_directory;
  SLUICE_RETURN_IF_ERROR(loaded->open_swap(swap_to != nullptr ? swap_to : ""));
  if (given.draft != nullptr) SLUICE_RETURN_IF_ERROR(loaded->allow_drafts());
  *engine = new sluice_engine{std::move(loaded)};
  return {};
}

std::string to_text(const session::ReportValue& value) {
  if (const std::string* text = std::get_if<std::string>(&value)) return *text;
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  char digits[64];
  const double number = std::get<double>(value);
  const bool whole = std::abs(number) < 0x1p53 && number == std::floor(number);
  const auto end = whole ? std::to_chars(digits, std::end(digits), static_cast<int64_t>(number)).ptr
                         : std::to_chars(digits, std::end(digits), number).ptr;
  return {digits, end};
}

Status inspect(const char* path, const sluice_load_options* options,
               sluice_metadata_callback callback, void* user) {
  sluice_load_options given = default_load_options();
  if (options != nullptr) SLUICE_RETURN_IF_ERROR(read_struct(options, &given));
  Result<native::LoadOptions> how = load_options(given);
  if (!how.ok()) return how.status();
  how->source.credentials.model = path;
  const Result<native::ModelHeader> header = native::read_header(path, how->source);
  if (!header.ok()) return header.status();
  const Result<native::AdapterFiles> adapters =
      native::AdapterFiles::open(how->adapters, how->source);
  if (!adapters.ok()) return adapters.status();
  how->engine.adapters = adapters->sources();
  how->engine.base_bytes += header->held;
  if (given.projector != nullptr) {
    const auto pictures = native::open_projector(given.projector, header->header, &*how);
    if (!pictures.ok()) return pictures.status();
  }
  std::optional<native::ModelHeader> draft;
  if (drafts_by_model(given)) {
    Result<native::ModelHeader> read = native::read_header(given.draft, how->source);
    if (!read.ok()) return generate::of_draft(read.status());
    draft.emplace(std::move(*read));
  }
  std::vector<std::array<std::string, 3>> properties;
  const auto sink = [&properties](const char* section, const char* key,
                                  const session::ReportValue& value) {
    properties.push_back({section != nullptr ? section : "", key, to_text(value)});
  };
  const Result<session::Inspection> found = generate::inspect(
      header->header, how->engine, draft ? &draft->header : nullptr, draft ? draft->held : 0, sink);
  if (!found.ok()) return found.status();
  SLUICE_RETURN_IF_ERROR(check_rows(given, found->plan));
  for (const auto& [section, key, value] : properties) {
    callback(user, section.empty() ? nullptr : section.c_str(), key.c_str(), value.c_str());
  }
  return {};
}

}  // namespace
}  // namespace sluice::api

using namespace sluice;
using namespace sluice::api;

extern "C" {

sluice_status sluice_load_options_default(sluice_load_options* options, size_t size) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(options);
    return write_struct(default_load_options(), options, size);
  });
}

sluice_status sluice_load(const char* path, const sluice_load_options* options,
                          sluice_engine** engine) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(path);
    SLUICE_REFUSE_NULL(engine);
    return load(path, options, engine, [path](const io::OpenOptions& source) {
      return native::read_header(path, source);
    });
  });
}

sluice_status sluice_load_reader(const sluice_reader* reader, const sluice_load_options* options,
                                 sluice_engine** engine) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(reader);
    SLUICE_REFUSE_NULL(engine);
    sluice_reader given = {};
    SLUICE_RETURN_IF_ERROR(read_struct(reader, &given));
    SLUICE_REFUSE_NULL(given.read);
    SLUICE_RETURN_IF_ERROR(check_flag(given.serialize_reads, "serialize_reads"));
    return load("", options, engine, [&given](const io::OpenOptions&) {
      return native::read_header(std::make_unique<ReaderSource>(given));
    });
  });
}

void sluice_engine_free(sluice_engine* engine) {
  delete engine;
}

sluice_status sluice_inspect(const char* path, const sluice_load_options* options,
                             sluice_metadata_callback callback, void* user) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(path);
    SLUICE_REFUSE_NULL(callback);
    return inspect(path, options, callback, user);
  });
}

sluice_status sluice_engine_info(const sluice_engine* engine, sluice_info* info) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(engine);
    SLUICE_REFUSE_NULL(info);
    return write_struct(engine->loaded->facts().info, info, info->size);
  });
}

sluice_status sluice_engine_stats(const sluice_engine* engine, sluice_stats* stats) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(engine);
    SLUICE_REFUSE_NULL(stats);
    return write_struct(engine->loaded->facts().stats, stats, stats->size);
  });
}

sluice_status sluice_engine_memory(const sluice_engine* engine, sluice_memory_callback callback,
                                   void* user) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(engine);
    SLUICE_REFUSE_NULL(callback);
    const Facts facts = engine->loaded->facts();  // the callback may free the engine
    for (const auto& [name, bytes] : facts.memory) callback(user, name, bytes);
    return {};
  });
}

sluice_status sluice_engine_set_memory_budget(sluice_engine* engine, uint64_t budget) {
  return guarded([&]() -> Status {
    SLUICE_REFUSE_NULL(engine);
    SLUICE_RETURN_IF_ERROR(options::check_budget(budget));
    Loaded& loaded = *engine->loaded;
    return loaded.take_turn([&] { return loaded.set_memory_budget(budget); });
  });
}

}  // extern "C"
