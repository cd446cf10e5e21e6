// Types and sizes are known before the first weight is read, because they follow from shapes; so
// the file is written front to back.
#include "convert/convert.h"

#include <algorithm>
#include <optional>

#include "base/round_up.h"
#include "convert/embedding_clusters.h"
#include "convert/head_clusters.h"
#include "convert/layout.h"
#include "convert/pieces.h"
#include "convert/target.h"
#include "gguf/early_exit.h"
#include "gguf/head_clusters.h"
#include "gguf/layer_importance.h"
#include "gguf/metadata_writer.h"
#include "gguf/printable.h"
#include "gguf/write.h"

namespace sluice::convert {
namespace {

using gguf::Header;
using gguf::Tensor;

constexpr uint32_t kQuantizationVersion = 2;  // of ggml's block formats

struct Plan {
  Header header;             // of the output
  std::vector<Tensor> from;  // the same tensors in the source
  std::vector<Choice> choices;
  std::vector<Sensitivity> sensitivities;  // where a size was asked for
  RowOrder by_cluster;  // of the output vectors that are written once more; empty: they are not
  std::optional<gguf::EmbeddingClusters> embedding;  // of the header; where it is written as a rest
};

uint64_t held_for(const Header& header) {
  uint64_t bytes = header.tensors.size() * (2 * sizeof(Tensor) + sizeof(TensorReport) + 64);
  for (const gguf::KeyValue& kv : header.metadata) {
    bytes += 64 + 2 * (kv.key.size() + kv.value.bytes.size());  // as it was read and to be written
  }
  return bytes;
}

// What the file says of its types, instead of what the source said.
void set_file_type(uint32_t file_type, Header* header) {
  std::erase_if(header->metadata, [](const gguf::KeyValue& kv) {
    return kv.key == "general.file_type" || kv.key == "general.quantization_version";
  });
  gguf::add_keys(header, [file_type](gguf::MetadataWriter& writer) {
    writer.number("general.file_type", file_type);
    writer.number("general.quantization_version", kQuantizationVersion);
  });
}

void set_floats(std::string_view key, std::span<const float> values, Header* header) {
  if (values.empty()) return;
  std::erase_if(header->metadata, [key](const gguf::KeyValue& kv) { return kv.key == key; });
  gguf::add_keys(header, [&](gguf::MetadataWriter& writer) { writer.floats(key, values); });
}

// Clusters are of the vectors that the file will have.
Status set_head_clusters(const Source& model, const Options& options, PieceMaker* maker,
                         Plan* plan) {
  const Tensor *head = head_of(model.header()), *written = head_of(plan->header);
  if (head == nullptr) return {};
  if (options.cluster_head) {
    const Result<const std::vector<float>*> importance = importance_of(options, *head);
    if (!importance.ok()) return importance.status();
    return add_clusters(model, *head, written->type, *importance, maker, &plan->header);
  }
  if (written->type != head->type) drop_clusters(&plan->header);
  return {};
}

// Behind all other tensors of its place. A file that is to have a size has no room for it.
Status write_by_cluster(const Source& model, const Options& options, const Layout& layout,
                        Plan* plan) {
  if (!options.cluster_head || options.target_bytes > 0 || !layout.takes_clusters()) return {};
  const Tensor* head = head_of(model.header());
  Tensor copy = *head_of(plan->header);
  copy.name = gguf::kHeadByCluster;
  const auto behind = [&layout, &copy](const Tensor& t) {
    return layout.place(t.name) > layout.place(copy.name);
  };
  const auto at = std::find_if(plan->header.tensors.begin(), plan->header.tensors.end(), behind) -
                  plan->header.tensors.begin();
  plan->header.tensors.insert(plan->header.tensors.begin() + at, copy);
  plan->from.insert(plan->from.begin() + at, *head);
  plan->choices.insert(plan->choices.begin() + at, Choice{copy.type});
  plan->by_cluster = order_by_cluster(plan->header);
  return gguf::index_tensors(&plan->header);
}

Status check_readable(const Tensor& tensor, gguf::TensorType to) {
  if (tensor.type == to || Source::readable(tensor.type)) return {};
  return error(Code::kUnsupportedType,
               "tensor \"%s\" has the type %s, whose values this program cannot read",
               gguf::printable(tensor.name).c_str(), gguf::type_info(tensor.type)->name);
}

// An embedding that is written as a rest cannot be the head too: that is a tensor of its own then.
Plan in_order(const Source& model, const Options& options, const Layout& layout) {
  struct Entry {
    Tensor as, from;
  };
  std::vector<Entry> entries;
  for (const uint32_t i : order_of_use(model.header())) {
    const Tensor& t = model.header().tensors[i];
    Tensor as = t;
    if (!options.cluster_embedding.empty() && t.name == "token_embd.weight") {
      if (model.header().find_tensor("output.weight") == nullptr) {
        as.name = "output.weight";
        entries.push_back({as, t});
      }
      as.name = gguf::kEmbeddingRest;
    }
    entries.push_back({as, t});
  }
  std::stable_sort(entries.begin(), entries.end(), [&layout](const Entry& a, const Entry& b) {
    return layout.place(a.as.name) < layout.place(b.as.name);
  });
  Plan plan;
  plan.header = model.header();
  plan.header.tensors.clear();
  for (const Entry& e : entries) {
    plan.header.tensors.push_back(e.as);
    plan.from.push_back(e.from);
  }
  return plan;
}

// Whether an embedding may be written as a rest.
Status check_cluster_embedding(const Source& model, const Options& options, const Layout& layout) {
  if (!layout.takes_clusters()) {
    return error(Code::kInvalidArgument,
                 "an embedding in clusters is for QSF files: OUT must end in .qsf");
  }
  if (options.target_bytes > 0) {
    return error(Code::kInvalidArgument, "an embedding in clusters has its own type: no size");
  }
  const Result<const Recipe*> rest = find_recipe(options.cluster_embedding);
  if (!rest.ok()) return rest.status();
  const Result<const Tensor*> embedding = embedding_of(model.header());
  if (!embedding.ok()) return embedding.status();
  const gguf::TypeInfo& info = *gguf::type_info((*rest)->type);
  if ((*embedding)->cols() % info.block_size == 0) return {};
  return error(Code::kInvalidArgument, "rows of %llu values are no whole blocks of %s",
               static_cast<unsigned long long>((*embedding)->cols()), info.name);
}

Status set_embedding_clusters(const Source& model, const Options& options, PieceMaker* maker,
                              Plan* plan) {
  if (options.cluster_embedding.empty()) return {};
  const Result<const Tensor*> embedding = embedding_of(model.header());
  if (!embedding.ok()) return embedding.status();
  SLUICE_RETURN_IF_ERROR(add_embedding_clusters(model, **embedding, maker, &plan->header));
  const Result<gguf::EmbeddingClusters> clusters = gguf::embedding_clusters(
      plan->header, *plan->header.find_tensor(std::string(gguf::kEmbeddingRest)));
  if (!clusters.ok()) return clusters.status();
  plan->embedding = *clusters;
  return {};
}

// The model's tensors in the layout's order, with what the file says besides; types are the
// source's.
Result<Plan> begin_plan(const Source& model, const Options& options, const Layout& layout) {
  if (!options.cluster_embedding.empty()) {
    SLUICE_RETURN_IF_ERROR(check_cluster_embedding(model, options, layout));
  }
  Plan plan = in_order(model, options, layout);
  SLUICE_RETURN_IF_ERROR(gguf::index_tensors(&plan.header));
  if (options.cluster_head && head_of(model.header()) == nullptr) {
    return error(Code::kInvalidArgument,
                 "the output vectors of this model cannot be put into clusters");
  }
  set_floats(gguf::kLayerImportance, options.layers, &plan.header);
  set_floats(gguf::kExitWeights, options.exits, &plan.header);
  if (options.target_bytes > 0) set_file_type(0, &plan.header);  // which one takes the same room
  return plan;
}

Result<std::unique_ptr<PieceMaker>> make_maker(const Source& model, const Options& options,
                                               const Layout& layout) {
  const uint64_t held =
      options.held + held_for(model.header()) + layout.memory(model.header()) +
      (options.importance != nullptr ? options.importance->bytes() : 0) +
      (options.cluster_head ? clustering_memory(*head_of(model.header()), kHeadGrouping) : 0) +
      (options.cluster_embedding.empty()
           ? 0
           : clustering_memory(**embedding_of(model.header()), kRowGrouping));
  return PieceMaker::create(model, options.threads, options.memory_budget, held);
}

Sizer sizer_for(const Source& model, const Options& options, const Layout& layout,
                const Plan& plan) {
  return {layout, plan.header,
          options.cluster_head ? clusters_bytes(*head_of(model.header()), kHeadGrouping) : 0};
}

// Matrices that the caller has a type for.
Status apply_wanted_types(const Options& options, Plan* plan) {
  for (const Options::WantedType& wanted : options.tensor_types) {
    const Result<const Recipe*> recipe = find_recipe(wanted.type);
    if (!recipe.ok()) return recipe.status();
    bool found = false;
    for (size_t i = 0; i < plan->from.size(); ++i) {
      const Tensor& t = plan->header.tensors[i];
      if (!is_quantizable(t) || t.name.find(wanted.name) == std::string_view::npos) continue;
      const gguf::TypeInfo& info = *gguf::type_info((*recipe)->type);
      if (t.cols() % info.block_size != 0) {
        return error(Code::kInvalidArgument, "rows of \"%s\" are no whole blocks of %s",
                     gguf::printable(t.name).c_str(), info.name);
      }
      plan->choices[i] = {(*recipe)->type};
      found = true;
    }
    if (found) continue;
    return error(Code::kInvalidArgument, "no matrix has \"%s\" in its name",
                 gguf::printable(wanted.name).c_str());
  }
  return {};
}

Status choose(const Source& model, const Options& options, const Layout& layout, PieceMaker* maker,
              Plan* plan) {
  if (options.target_bytes > 0) {
    Result<Sized> sized =
        types_for_size(plan->header, sizer_for(model, options, layout, *plan), options, maker);
    if (!sized.ok()) return sized.status();
    plan->choices = std::move(sized->choices);
    plan->sensitivities = std::move(sized->sensitivities);
    set_file_type(file_type_of(commonest(plan->header, plan->choices)), &plan->header);
  } else if (options.type.empty()) {
    plan->choices = keep_types(plan->header);
    for (size_t i = 0; i < plan->from.size(); ++i) {  // nothing smaller holds the sum of two parts
      if (model.joins(plan->from[i])) plan->choices[i].type = gguf::TensorType::kF16;
    }
  } else {
    const Result<const Recipe*> recipe = find_recipe(options.type);
    if (!recipe.ok()) return recipe.status();
    plan->choices =
        choose_types(plan->header, **recipe, options.pure, options.importance != nullptr);
    set_file_type((*recipe)->file_type, &plan->header);
  }
  SLUICE_RETURN_IF_ERROR(apply_wanted_types(options, plan));
  if (options.type.empty() && !options.tensor_types.empty()) {
    set_file_type(file_type_of(commonest(plan->header, plan->choices)), &plan->header);
  }
  for (size_t i = 0; i < plan->from.size(); ++i) {
    if (plan->header.tensors[i].name == gguf::kEmbeddingRest) {
      plan->choices[i] = {(*find_recipe(options.cluster_embedding))->type};
    }
    SLUICE_RETURN_IF_ERROR(check_readable(plan->from[i], plan->choices[i].type));
    plan->header.tensors[i].type = plan->choices[i].type;
    SLUICE_RETURN_IF_ERROR(gguf::set_tensor_bytes(&plan->header.tensors[i]));
  }
  return {};
}

bool is_of_qsf(gguf::TensorType type) {
  switch (type) {
#define SLUICE_QSF_TYPE(NAME, name, id, values, bytes) case gguf::TensorType::k##NAME:
#include "kernels/types.def"
    return true;
    default:
      return false;
  }
}

class GgufLayout final : public Layout {
 public:
  [[nodiscard]] uint64_t front_bytes(const Header& header) const override {
    Header copy = header;
    return gguf::place_and_write(&copy).size();
  }
  [[nodiscard]] Result<uint64_t> file_bytes(Header* header, uint64_t front) const override {
    uint64_t at = round_up(front, header->alignment);
    for (const Tensor& t : header->tensors) at += round_up(t.bytes, header->alignment);
    return at;
  }
  [[nodiscard]] Status begin(Header* header, Output* output) override {
    header_ = header;
    output_ = output;
    for (const Tensor& t : header->tensors) {
      if (!is_of_qsf(t.type)) continue;
      return error(Code::kInvalidArgument,
                   "the type %s is QSF's own: OUT must end in .qsf, or ask for another by --type",
                   gguf::type_info(t.type)->name);
    }
    const std::string bytes = gguf::place_and_write(header);
    output->expect(header->tensors.empty()
                       ? bytes.size()
                       : header->tensors.back().offset + header->tensors.back().bytes);
    return output->write({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  }
  [[nodiscard]] Status start(size_t i) override {
    return output_->pad_to(header_->tensors[i].offset);
  }
  [[nodiscard]] Status write(std::span<const uint8_t> bytes) override {
    return output_->write(bytes);
  }
  [[nodiscard]] Status finish() override {
    const uint64_t whole = header_->alignment;
    return output_->pad_to((output_->done() + whole - 1) / whole * whole);
  }

 private:
  Header* header_ = nullptr;
  Output* output_ = nullptr;
};

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
  const Result<std::unique_ptr<PieceMaker>> maker = make_maker(model, options, *layout);
  if (!maker.ok()) return maker.status();
  SLUICE_RETURN_IF_ERROR(choose(model, options, *layout, maker->get(), &plan));
  SLUICE_RETURN_IF_ERROR(set_head_clusters(model, options, maker->get(), &plan));
  SLUICE_RETURN_IF_ERROR(write_by_cluster(model, options, *layout, &plan));
  SLUICE_RETURN_IF_ERROR(set_embedding_clusters(model, options, maker->get(), &plan));

  Output output(sink, options);
  SLUICE_RETURN_IF_ERROR(layout->begin(&plan.header, &output));
  Report report;
  report.memory = (*maker)->memory();
  for (size_t i = 0; i < plan.header.tensors.size(); ++i) {
    const Tensor& from = plan.from[i];
    const gguf::TensorType to = plan.header.tensors[i].type;
    const bool rest = plan.header.tensors[i].name == gguf::kEmbeddingRest;
    const Result<const std::vector<float>*> importance =
        rest ? nullptr : importance_of(options, from);
    if (!importance.ok()) return importance.status();
    RowForm form;
    if (rest) form.clusters = &*plan.embedding;
    if (plan.header.tensors[i].name == gguf::kHeadByCluster) form.order = &plan.by_cluster;
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
    report.bytes_before += line.bytes_before;
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
      qsf.has_value() ? make_qsf_layout(*qsf) : make_gguf_layout();
  const Result<Plan> plan = begin_plan(model, options, *layout);
  if (!plan.ok()) return plan.status();
  const Sizer sizer = sizer_for(model, options, *layout, *plan);
  SLUICE_RETURN_IF_ERROR(check_size(plan->header, sizer, options, nullptr));
  if (!reads) return {};
  const Result<std::unique_ptr<PieceMaker>> maker = make_maker(model, options, *layout);
  if (!maker.ok()) return maker.status();
  return check_size(plan->header, sizer, options, maker->get());
}

std::unique_ptr<Layout> make_gguf_layout() {
  return std::make_unique<GgufLayout>();
}

Result<Report> to_gguf(const Source& model, const Options& options, Sink* sink) {
  const std::unique_ptr<Layout> layout = make_gguf_layout();
  return write_model(model, options, layout.get(), sink);
}

Result<Report> to_qsf(const Source& model, const Options& options, Packing packing, Sink* sink) {
  const std::unique_ptr<Layout> layout = make_qsf_layout(packing);
  return write_model(model, options, layout.get(), sink);
}

Result<Packing> find_packing(std::string_view name) {
  constexpr std::string_view kNames[] = {"none", "lz4", "lz4hc", "zstd", "auto"};
  const auto found = std::find(std::begin(kNames), std::end(kNames), name);
  if (found != std::end(kNames)) return static_cast<Packing>(found - std::begin(kNames));
  return error(Code::kInvalidArgument,
               "there is no compression \"%.40s\": none, lz4, lz4hc, zstd, auto",
               std::string(name).c_str());
}

}  // namespace sluice::convert
