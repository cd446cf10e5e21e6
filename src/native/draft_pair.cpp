// Splits the budget using both headers, then opens both models.
#include "native/draft_pair.h"

#include "generate/draft_pair.h"

namespace sluice::native {

Result<DraftPair> open_pair(ModelHeader model, const std::string& draft,
                            const session::EngineOptions& options, const io::OpenOptions& source) {
  Result<ModelHeader> smaller = read_header(draft, source);
  if (!smaller.ok()) return generate::of_draft(smaller.status());
  session::EngineOptions with_sources = options;
  with_sources.base_bytes += model.held;
  Result<generate::PairOptions> how =
      generate::share_budget(model.header, with_sources, smaller->header, smaller->held);
  if (!how.ok()) return how.status();
  how->model.base_bytes -= model.held;  // Model::open adds what the sources hold
  how->draft.base_bytes -= smaller->held;
  DraftPair out;
  out.minimum = how->minimum;
  Result<std::unique_ptr<Model>> first = Model::open(std::move(model), how->model);
  if (!first.ok()) return first.status();
  out.model = std::move(*first);
  warn_of_context(out.model->engine().plan(), source);
  how->draft.pool = &out.model->engine().pool();
  how->draft.n_threads = out.model->engine().plan().threads.n_threads;
  Result<std::unique_ptr<Model>> second = Model::open(std::move(*smaller), how->draft);
  if (!second.ok()) return generate::of_draft(second.status());
  out.draft = std::move(*second);
  SLUICE_RETURN_IF_ERROR(generate::check_same_vocabulary(out.model->engine().tokenizer(),
                                                         out.draft->engine().tokenizer()));
  return out;
}

Result<DraftPair> open_pair(const std::string& path, const std::string& draft,
                            const LoadOptions& options) {
  Result<ModelHeader> header = read_header(path, options.source);
  if (!header.ok()) return header.status();
  if (options.on_header) options.on_header(header->header);
  const Result<AdapterFiles> adapters = AdapterFiles::open(options.adapters, options.source);
  if (!adapters.ok()) return adapters.status();
  session::EngineOptions engine = options.engine;
  engine.adapters = adapters->sources();
  return open_pair(std::move(*header), draft, engine, options.source);
}

}  // namespace sluice::native
