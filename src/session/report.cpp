// Collects the report.
#include "session/report.h"

#include <algorithm>
#include <map>

#include "session/plan_sizes.h"

namespace sluice::session {
namespace {

std::string_view piece_of(const gguf::Header& header, uint64_t id) {
  const gguf::Value* tokens = header.find("tokenizer.ggml.tokens");
  std::string_view piece;
  if (tokens == nullptr || id >= tokens->count) return {};
  gguf::StringCursor cursor(*tokens);
  for (uint64_t i = 0; i <= id; ++i) {
    if (!cursor.next(&piece)) return {};
  }
  return piece;
}

}  // namespace

TokenWork work_per_token(const model::Program& p) {
  TokenWork work;
  const double used = p.hp.moe.n_expert > 0 ? static_cast<double>(p.hp.moe.n_expert_used) /
                                                  static_cast<double>(p.hp.moe.n_expert)
                                            : 1;
  for (size_t i = 0; i < p.mats.size(); ++i) {
    const model::Mat& m = p.mats[i];
    if (p.by_rows(i) || m.layer >= p.hp.n_layer) continue;
    const double share = (m.expert && static_cast<int32_t>(i) != p.head ? used : 1) * m.share;
    work.macs += share * static_cast<double>(m.rows * m.cols);
    work.bytes += share * static_cast<double>(m.rows * m.row_bytes);
  }
  return work;
}

void report_model(const gguf::Header& header, const Inspection& found, const ReportSink& sink) {
  const model::HParams& hp = found.program.hp;
  const auto number = [&sink](const char* key, auto value) {
    sink(nullptr, key, static_cast<double>(value));
  };
  sink(nullptr, "architecture", hp.arch);
  sink(nullptr, "name", hp.name);
  uint64_t bytes = 0, parameters = 0;
  std::map<std::string, uint64_t> types;
  for (const gguf::Tensor& t : header.tensors) {
    bytes += t.bytes;
    parameters += t.cols() * t.rows();
    const gguf::TypeInfo* info = gguf::type_info(t.type);
    types[info != nullptr ? info->name : "?"] += t.bytes;
  }
  number("parameters", parameters);
  number("bytes", bytes);
  for (const auto& [type, n] : types) sink("types", type.c_str(), static_cast<double>(n));
  number("layers", hp.n_layer);
  number("layersSkipped", found.program.skipped.size());
  number("embeddingLength", hp.n_embd);
  number("feedForwardLength", hp.moe.n_expert > 0 ? hp.moe.n_ff_expert : hp.ffn.n_ff);
  number("attentionHeads", hp.attention.n_head);
  number("kvHeads", hp.attention.n_head_kv);
  number("headDim", hp.attention.head_dim_k);
  number("vocabSize", hp.n_vocab);
  number("trainContextLength", hp.n_ctx_train);
  number("experts", hp.moe.n_expert);
  number("expertsUsed", hp.moe.n_expert_used);
  sink(nullptr, "tiedEmbeddings", found.program.head == found.program.embedding);
  const bool ranks = found.program.rank_tail.width > 0;
  sink(nullptr, "generates", hp.attention.causal && found.program.head >= 0);
  sink(nullptr, "embeds", !ranks && header.find(hp.arch + ".pooling_type") != nullptr);
  sink(nullptr, "reranks", ranks);
  number("files", header.n_files);
  number("tensors", header.tensors.size());
  const TokenWork work = work_per_token(found.program);
  number("macsPerToken", work.macs);
  number("bytesPerToken", work.bytes);
  sink(nullptr, "kernels", std::string(found.table->name));
  const std::string text(header.get_string("tokenizer.chat_template").value_or(""));
  const std::string for_tools(header.get_string("tokenizer.chat_template.tool_use").value_or(""));
  // A model's only template is used for every request.
  const std::string& usual = text.empty() ? for_tools : text;
  if (!usual.empty()) sink(nullptr, "chatTemplate", usual);
  if (!text.empty() && !for_tools.empty()) sink(nullptr, "toolTemplate", for_tools);
  const std::pair<const char*, const char*> specials[] = {
      {"bosToken", "tokenizer.ggml.bos_token_id"},
      {"eosToken", "tokenizer.ggml.eos_token_id"},
      {"unkToken", "tokenizer.ggml.unknown_token_id"},
      {"padToken", "tokenizer.ggml.padding_token_id"}};
  for (const auto& [key, name] : specials) {
    const auto id = header.get_u64(name);
    if (id) sink(nullptr, key, std::string(piece_of(header, *id)));
  }
}

void report_plan(const MemoryPlan& plan, const MemoryPlan* draft, uint64_t minimum,
                 const ReportSink& sink) {
  const auto number = [&sink](const char* key, auto value) {
    sink("plan", key, static_cast<double>(value));
  };
  const uint64_t beside = draft != nullptr ? draft->total() : 0;
  number("budget", plan.budget.bytes + (draft != nullptr ? draft->budget.bytes : 0));
  number("total", plan.total() + beside);
  number("minimum", draft != nullptr ? minimum : plan.budget.minimum);
  number("contextLength", plan.context.n_ctx);
  sink("plan", "contextFrom", std::string(context_from_name(plan.context.from)));
  number("batch", plan.batch.n_batch);
  number("threads", plan.threads.n_threads);
  number("parallel", plan.sessions.parallel);
  for (const MemoryPart& part : plan.parts()) number(part.name, part.bytes);
  number("draft", beside);
  number("weights", plan.weights.pinned_bytes + plan.weights.ring_bytes());
  number("streamSlots", plan.weights.n_slots);
  number("streamSlotBytes", plan.weights.slot_bytes);
  sink("plan", "kvType", kv::kv_types_name(plan.kv.types));
  number("kvCapacity", plan.kv.layout.positions);
  number("units", plan.weights.units.size());
  number("bytesPerPass", plan.weights.streamed_bytes);
  sink("plan", "embeddingResident", plan.weights.embedding_resident);
  sink("plan", "resident", plan.weights.streamed_bytes == 0);
}

void report_kv_types(const Inspection& found, const EngineOptions& options, const BudgetRule& rule,
                     const ReportSink& sink) {
  EngineOptions with = options;
  for (const char* name : {"f16", "q8_0", "q4_0", "q2"}) {
    with.kv = *kv::parse_kv_types(name);
    const uint64_t bytes = kv_bytes(found.program, found.plan, with.kv);
    if (bytes == 0) continue;
    sink("kvBytes", name, static_cast<double>(bytes));
    if (options.memory_budget == 0) continue;
    sink("maxContextByKvType", name,
         static_cast<double>(longest_context(found.program, found.plan.kv.layout, with, rule)));
  }
}

std::vector<uint32_t> layer_units(const Inspection& found) {
  const residency::Plan& weights = found.plan.weights;
  const auto n_layer = static_cast<int32_t>(found.program.hp.n_layer);
  std::vector<uint32_t> first(static_cast<size_t>(n_layer) + 1,
                              static_cast<uint32_t>(weights.units.size()));
  int32_t last = -1;
  for (const model::Op& op : found.program.ops) {
    last = std::max(last, op.layer);
    if (op.layer < 0 && last + 1 < n_layer) continue;  // the embedding
    uint32_t& unit = first[static_cast<size_t>(op.layer < 0 ? n_layer : op.layer)];
    const auto use = [&](const std::vector<int32_t>& items, int32_t index) {
      if (index < 0) return;
      const auto item = static_cast<size_t>(items[static_cast<size_t>(index)]);
      unit = std::min(unit, weights.first_unit[item]);
    };
    use(found.plan.items.vec, op.vecs()[0]);
    const auto* product = op.get<model::MatmulOp>();
    if (product != nullptr && product->n_parts > 0) use(found.plan.items.mat, product->all[0].mat);
  }
  // A skipped layer starts where the next one does.
  for (size_t i = found.program.skipped.size(); i-- > 0;) {
    const auto layer = static_cast<size_t>(found.program.skipped[i]);
    first[layer] = first[layer + 1];
  }
  return first;
}

}  // namespace sluice::session
