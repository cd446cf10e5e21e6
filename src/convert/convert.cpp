// Makes a plan, then converts its tensors from the source into the layout.
#include "convert/convert.h"

#include <algorithm>

#include "convert/plan.h"
#include "gguf/head_clusters.h"

namespace sluice::convert {
namespace {

Result<std::unique_ptr<ChunkMaker>> make_maker(const Source& model, const Options& options,
                                               const Layout& layout) {
  return ChunkMaker::create(model, options.threads, options.memory_budget,
                            held_for(model, options, layout), options.hessians);
}

Outliers outliers_of(const TensorReport& line, const Choice& choice, const Options& options) {
  if (line.outlier_share == 0) return Outliers::kNone;
  if (!outliers_kept(line.outlier_error, options)) return Outliers::kClamped;
  return choice.raised ? Outliers::kRaised : Outliers::kKept;
}

Result<Report> write_model(const Source& model, const Options& options, Layout* layout,
                           Sink* sink) {
  Result<Plan> begun = begin_plan(model, options, *layout);
  if (!begun.ok()) return begun.status();
  Plan& plan = *begun;
  const Result<std::unique_ptr<ChunkMaker>> maker = make_maker(model, options, *layout);
  if (!maker.ok()) return maker.status();
  SLUICE_RETURN_IF_ERROR(finish_plan(model, options, *layout, maker->get(), &plan));

  Output output(sink, options);
  SLUICE_RETURN_IF_ERROR(layout->begin(&plan.header, &output));
  Report report;
  report.memory = (*maker)->memory();
  for (size_t i = 0; i < plan.header.tensors.size(); ++i) {
    const gguf::Tensor& from = plan.from[i];
    const gguf::TensorType to = plan.header.tensors[i].type;
    const bool rest = plan.header.tensors[i].name == gguf::kEmbeddingRest;
    const Result<const std::vector<float>*> importance =
        rest ? nullptr : importance_of(options, from);
    if (!importance.ok()) return importance.status();
    RowForm form;
    if (rest) form.clusters = &*plan.embedding;
    if (plan.header.tensors[i].name == gguf::kHeadByCluster) form.order = &plan.by_cluster;
    if (options.hessians != nullptr && !rest) form.hessians = options.hessians->find(from);
    TensorReport& line = report.tensors.emplace_back();
    line.name = std::string(plan.header.tensors[i].name);
    line.from = from.type;
    line.to = to;
    line.fallback = plan.choices[i].fallback;
    if (i < plan.sensitivities.size()) line.sensitivity = plan.sensitivities[i];
    SLUICE_RETURN_IF_ERROR(layout->start(i));
    SLUICE_RETURN_IF_ERROR((*maker)->make(
        from, to, *importance,
        [layout](std::span<const uint8_t> bytes) { return layout->write(bytes); }, &line, form));
    line.outliers = outliers_of(line, plan.choices[i], options);
    // A tensor that is written twice counts once.
    if (rest || line.name == from.name) report.bytes_before += line.bytes_before;
  }
  SLUICE_RETURN_IF_ERROR(layout->finish());
  report.bytes = output.done();
  return report;
}

}  // namespace

const char* name_of(Outliers outliers) {
  constexpr const char* kNames[] = {"", "kept", "clamped", "raised"};
  return kNames[static_cast<size_t>(outliers)];
}

Status Output::write(std::span<const uint8_t> bytes) {
  SLUICE_RETURN_IF_ERROR(sink_->write(bytes));
  done_ += bytes.size();
  if (options_->on_progress) options_->on_progress(done_, std::max(done_, total_));
  return {};
}

Status Output::pad_to(uint64_t offset) {
  if (sink_ == nullptr) done_ = std::max(done_, offset);
  static constexpr uint8_t kZeros[4096] = {};
  while (done_ < offset) {
    SLUICE_RETURN_IF_ERROR(
        write(std::span(kZeros).first(std::min<uint64_t>(sizeof kZeros, offset - done_))));
  }
  return {};
}

Status check_size(const Source& model, const Options& options, std::optional<Packing> qsf,
                  bool reads) {
  const std::unique_ptr<Layout> layout =
      qsf.has_value() ? make_qsf_layout(*qsf, options.expert_records) : make_gguf_layout();
  const Result<Plan> plan = begin_plan(model, options, *layout);
  if (!plan.ok()) return plan.status();
  const Sizer sizer = sizer_for(model, options, *layout, *plan);
  SLUICE_RETURN_IF_ERROR(check_size(plan->header, sizer, options, nullptr));
  if (!reads) return {};
  const Result<std::unique_ptr<ChunkMaker>> maker = make_maker(model, options, *layout);
  if (!maker.ok()) return maker.status();
  return check_size(plan->header, sizer, options, maker->get());
}

Result<Report> to_gguf(const Source& model, const Options& options, Sink* sink) {
  const std::unique_ptr<Layout> layout = make_gguf_layout();
  return write_model(model, options, layout.get(), sink);
}

Result<Report> to_qsf(const Source& model, const Options& options, Packing packing, Sink* sink) {
  const std::unique_ptr<Layout> layout = make_qsf_layout(packing, options.expert_records);
  return write_model(model, options, layout.get(), sink);
}

Result<Packing> find_packing(std::string_view name) {
  constexpr std::string_view kNames[] = {"none", "lz4", "lz4hc", "zstd", "auto"};
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found != std::end(kNames)) return static_cast<Packing>(found - std::begin(kNames));
  return error(Code::kInvalidArgument,
               "unknown compression \"%.40s\"; use none, lz4, lz4hc, zstd or auto",
               std::string(name).c_str());
}

}  // namespace sluice::convert
