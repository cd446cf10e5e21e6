// Types and sizes follow from shapes, so they are known before weights are read, and the file is
// written front to back.
#include "convert/plan.h"

#include <algorithm>

#include "convert/embedding_clusters.h"
#include "convert/head_clusters.h"
#include "gguf/early_exit.h"
#include "gguf/head_clusters.h"
#include "gguf/layer_importance.h"
#include "gguf/metadata_writer.h"
#include "gguf/printable.h"

namespace sluice::convert {
namespace {

using gguf::Header;
using gguf::Tensor;

constexpr uint32_t kQuantizationVersion = 2;  // of ggml's block formats

uint64_t bytes_of(const Header& header) {
  uint64_t bytes = header.tensors.size() * (2 * sizeof(Tensor) + sizeof(TensorReport) + 64);
  for (const gguf::KeyValue& kv : header.metadata) {
    bytes += 64 + 2 * (kv.key.size() + kv.value.bytes.size());  // as read and as written
  }
  return bytes;
}

// Replaces the source's file type metadata.
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

// Clusters the rows in the type that the file will have.
Status set_head_clusters(const Source& model, const Options& options, ChunkMaker* maker,
                         Plan* plan) {
  const Tensor *head = head_of(model.header()), *written = head_of(plan->header);
  if (written == nullptr) return {};
  if (options.cluster_head) {
    const Result<const std::vector<float>*> importance = importance_of(options, *head);
    if (!importance.ok()) return importance.status();
    return add_clusters(model, *head, written->type, *importance, maker, &plan->header);
  }
  if (written->type != head->type) drop_clusters(&plan->header);
  return {};
}

// Adds the head sorted by cluster, behind the other tensors of its section. Not with a target size.
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
               "cannot convert tensor \"%s\": decoding its type %s is unsupported",
               gguf::printable(tensor.name).c_str(), gguf::type_info(tensor.type)->name);
}

// Sorts the tensors in file order. An embedding stored as a remainder cannot also be the output
// head, so the head becomes a separate tensor.
Plan in_order(const Source& model, const Options& options, const Layout& layout) {
  struct Entry {
    Tensor as, from;
  };
  std::vector<Entry> entries;
  const std::string_view arch =
      model.header().get_string("general.architecture").value_or(std::string_view());
  const bool makes_logits = arch.find("bert") == std::string_view::npos && arch != "t5encoder";
  for (const uint32_t i : order_of_use(model.header())) {
    const Tensor& t = model.header().tensors[i];
    Tensor as = t;
    if (!options.cluster_embedding.empty() && t.name == "token_embd.weight") {
      if (makes_logits && model.header().find_tensor("output.weight") == nullptr) {
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

// Whether the embedding can be stored as centres and remainders.
Status check_cluster_embedding(const Source& model, const Options& options, const Layout& layout) {
  if (!layout.takes_clusters()) {
    return error(Code::kInvalidArgument,
                 "--cluster-embedding needs a QSF file: OUT must end in .qsf");
  }
  if (options.target_bytes > 0) {
    return error(Code::kInvalidArgument,
                 "--cluster-embedding cannot be combined with --target-size");
  }
  const Result<const Recipe*> rest = find_recipe(options.cluster_embedding);
  if (!rest.ok()) return rest.status();
  const Result<const Tensor*> embedding = embedding_of(model.header());
  if (!embedding.ok()) return embedding.status();
  const gguf::TypeInfo& info = *gguf::type_info((*rest)->type);
  if ((*embedding)->cols() % info.block_size == 0) return {};
  return error(Code::kInvalidArgument,
               "embedding rows of %llu values are not a multiple of the block size of %s",
               static_cast<unsigned long long>((*embedding)->cols()), info.name);
}

Status set_embedding_clusters(const Source& model, const Options& options, ChunkMaker* maker,
                              Plan* plan) {
  if (options.cluster_embedding.empty()) return {};
  const Result<const Tensor*> embedding = embedding_of(model.header());
  if (!embedding.ok()) return embedding.status();
  SLUICE_RETURN_IF_ERROR(add_embedding_clusters(model, **embedding, maker, &plan->header));
  const Result<gguf::EmbeddingClusters> clusters =
      gguf::embedding_clusters(plan->header, *plan->header.find_tensor(gguf::kEmbeddingRest));
  if (!clusters.ok()) return clusters.status();
  plan->embedding = *clusters;
  return {};
}

// Applies --tensor-type. If several names match a matrix, the last one counts.
Status apply_wanted_types(const Options& options, Plan* plan) {
  std::vector<bool> names_one(options.tensor_types.size());
  for (size_t i = 0; i < plan->from.size(); ++i) {
    const Tensor& t = plan->header.tensors[i];
    if (!is_quantizable(t)) continue;
    const Options::WantedType* wanted = nullptr;
    for (size_t n = 0; n < names_one.size(); ++n) {
      if (t.name.find(options.tensor_types[n].name) == std::string_view::npos) continue;
      wanted = &options.tensor_types[n];
      names_one[n] = true;
    }
    if (wanted == nullptr) continue;
    const Result<const Recipe*> recipe = find_recipe(wanted->type);
    if (!recipe.ok()) return recipe.status();
    const gguf::TypeInfo& info = *gguf::type_info((*recipe)->type);
    if (t.cols() % info.block_size != 0) {
      return error(Code::kInvalidArgument,
                   "the rows of \"%s\" are not a multiple of the block size of %s",
                   gguf::printable(t.name).c_str(), info.name);
    }
    plan->choices[i] = {(*recipe)->type};
  }
  for (size_t n = 0; n < names_one.size(); ++n) {
    if (names_one[n]) continue;
    return error(Code::kInvalidArgument, "--tensor-type: no matrix has \"%s\" in its name",
                 gguf::printable(options.tensor_types[n].name).c_str());
  }
  return {};
}

// Types of one and two bits lose too much where nothing says which columns matter.
Status check_imatrix(const Options& options, const Plan& plan) {
  if (options.importance != nullptr) return {};
  const Recipe* recipe = options.type.empty() ? nullptr : *find_recipe(options.type);
  for (size_t i = 0; i < plan.from.size(); ++i) {
    const Tensor& t = plan.header.tensors[i];
    const gguf::TensorType type = plan.choices[i].type;
    if (type == plan.from[i].type || !needs_imatrix(t.name, type, recipe)) continue;
    return error(Code::kInvalidArgument,
                 "%s of \"%s\" needs an importance matrix: --calibrate TEXT makes one, "
                 "--imatrix FILE reads one",
                 gguf::type_info(type)->name, gguf::printable(t.name).c_str());
  }
  return {};
}

// Applies --min-cosine to the types of --type.
Status raise_types(const Options& options, ChunkMaker* maker, Plan* plan) {
  for (size_t i = 0; i < plan->from.size(); ++i) {
    if (!is_quantizable(plan->from[i])) continue;
    const Result<Choice> choice = near_enough(plan->from[i], plan->choices[i], options, maker);
    if (!choice.ok()) return choice.status();
    plan->choices[i] = *choice;
  }
  return {};
}

Status choose(const Source& model, const Options& options, const Layout& layout, ChunkMaker* maker,
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
    for (size_t i = 0; i < plan->from.size(); ++i) {  // no smaller type holds the sum of both parts
      if (model.joins(plan->from[i])) plan->choices[i].type = gguf::TensorType::kF16;
    }
  } else {
    const Result<const Recipe*> recipe = find_recipe(options.type);
    if (!recipe.ok()) return recipe.status();
    plan->choices =
        choose_types(plan->header, **recipe, options.pure, options.importance != nullptr);
    set_file_type((*recipe)->file_type, &plan->header);
  }
  if (!options.type.empty() && options.min_cosine.has_value()) {
    SLUICE_RETURN_IF_ERROR(raise_types(options, maker, plan));
  }
  SLUICE_RETURN_IF_ERROR(apply_wanted_types(options, plan));
  SLUICE_RETURN_IF_ERROR(check_imatrix(options, *plan));
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

}  // namespace

Result<Plan> begin_plan(const Source& model, const Options& options, const Layout& layout) {
  if (!options.cluster_embedding.empty()) {
    SLUICE_RETURN_IF_ERROR(check_cluster_embedding(model, options, layout));
  }
  Plan plan = in_order(model, options, layout);
  SLUICE_RETURN_IF_ERROR(gguf::index_tensors(&plan.header));
  if (options.cluster_head && head_of(plan.header) == nullptr) {
    return error(Code::kInvalidArgument,
                 "--cluster-head: the output head of this model cannot be clustered");
  }
  set_floats(gguf::kLayerImportance, options.layers, &plan.header);
  set_floats(gguf::kExitWeights, options.exits, &plan.header);
  if (options.target_bytes > 0) set_file_type(0, &plan.header);  // any value takes the same space
  return plan;
}

Sizer sizer_for(const Source& model, const Options& options, const Layout& layout,
                const Plan& plan) {
  return {layout, plan.header,
          options.cluster_head ? clusters_bytes(*head_of(model.header()), kHeadGrouping) : 0};
}

uint64_t held_for(const Source& model, const Options& options, const Layout& layout) {
  const Header& header = model.header();
  uint64_t bytes = options.held + bytes_of(header) + layout.memory(header);
  if (options.importance != nullptr) bytes += options.importance->bytes();
  if (options.hessians != nullptr) bytes += options.hessians->bytes();
  if (options.cluster_head) bytes += clustering_memory(*head_of(header), kHeadGrouping);
  if (!options.cluster_embedding.empty()) {
    bytes += clustering_memory(**embedding_of(header), kRowGrouping);
  }
  return bytes;
}

Status finish_plan(const Source& model, const Options& options, const Layout& layout,
                   ChunkMaker* maker, Plan* plan) {
  SLUICE_RETURN_IF_ERROR(choose(model, options, layout, maker, plan));
  SLUICE_RETURN_IF_ERROR(set_head_clusters(model, options, maker, plan));
  SLUICE_RETURN_IF_ERROR(write_by_cluster(model, options, layout, plan));
  return set_embedding_clusters(model, options, maker, plan);
}

}  // namespace sluice::convert
