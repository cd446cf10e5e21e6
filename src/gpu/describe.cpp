// Serializes the program to JSON for web/gpu/program.ts, which declares the same types. Fields have
// the names of model/op.h and program.h in camel case, enumerations are numbers. Tensor names are
// included for error messages only.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "gpu/gpu_executor.h"

namespace sluice::gpu {
namespace {

using Json = nlohmann::json;
using model::Program;

template <typename T>
int number(T value) {
  return static_cast<int>(value);
}

template <typename T, typename Write>
Json list(const std::vector<T>& values, Write&& write) {
  Json out = Json::array();
  for (const T& value : values) out.push_back(write(value));
  return out;
}

// An object with one field: nested initializer lists take more code.
Json one(const char* name, Json value) {
  Json out = Json::object();
  out[name] = std::move(value);
  return out;
}

Json shape_json(const model::AttentionShape& att, int32_t layer) {
  return {{"heads", att.heads},   {"kvHeads", att.kv_heads},
          {"dk", att.dk},         {"dv", att.dv},
          {"cache", att.cache},   {"valuesInKeys", att.values_in_keys},
          {"causal", att.causal}, {"owned", att.owned_by(layer)}};
}

Json attention_json(const model::AttentionOp& own, int32_t layer) {
  const float scale = own.scale != 0
                          ? own.scale
                          : static_cast<float>(1 / std::sqrt(static_cast<double>(own.att.dk)));
  return {{"att", shape_json(own.att, layer)},
          {"scale", scale},
          {"softcap", own.softcap},
          {"window", own.window},
          {"chunked", own.chunked},
          {"alibi", own.alibi}};
}

Json product_json(const model::MatmulOp& own) {
  Json parts = Json::array();
  for (const model::MatPart& part : own.parts()) {
    parts.push_back({{"mat", part.mat},
                     {"bias", part.bias},
                     {"outCol", part.out_col},
                     {"factor", part.factor}});
  }
  return {{"parts", std::move(parts)}, {"add", own.add}, {"scale", own.scale}};
}

// A mixture of experts as numbers, in the order of web/gpu/program.ts. Matrices are given by the
// first expert's index; the other experts follow.
Json mixture_json(const model::Moe& m) {
  const auto first = [](const std::vector<int32_t>& mats) { return mats.empty() ? -1 : mats[0]; };
  const int32_t all[] = {first(m.gate),  m.up[0],       m.down[0],        number(m.up.size()),
                         m.n_expert,     m.n_used,      m.n_ff,           m.n_group,
                         m.n_group_used, m.shared_by,   number(m.gating), m.normalize,
                         m.weigh_input,  number(m.act), m.choice_bias,    m.gate_bias,
                         m.up_bias,      m.down_bias,   m.gate_scale,     m.up_scale,
                         m.down_scale};
  return {{"numbers", all}, {"weightsScale", m.weights_scale}};
}

// The fields specific to each kind of operation that the GPU executor supports. It rejects other
// kinds.
Json own_json(const model::Op& op) {
  if (const auto* own = op.get<model::EmbedOp>()) return one("scale", own->scale);
  if (const auto* own = op.get<model::AttentionOp>()) return attention_json(*own, op.layer);
  if (const auto* own = op.get<model::MatmulOp>()) return product_json(*own);
  if (const auto* own = op.get<model::RopeOp>()) {
    return {{"rope", own->rope}, {"att", shape_json(own->att, op.layer)}};
  }
  if (const auto* own = op.get<model::NormOp>()) {
    return {{"heads", own->heads},
            {"norm", number(own->kind)},
            {"vecPerHead", own->per_head},
            {"eps", own->eps},
            {"scale", own->scale}};
  }
  if (const auto* own = op.get<model::ActivateOp>()) {
    const kernels::Xielu& x = own->xielu;
    return {{"act", number(own->act)}, {"xielu", {x.positive, x.negative, x.linear, x.below}}};
  }
  if (const auto* own = op.get<model::CopyOp>()) {
    return {{"heads", own->heads}, {"inStep", own->in_step}, {"outStep", own->out_step}};
  }
  if (const auto* own = op.get<model::MoeOp>()) {
    return {{"moe", own->moe}, {"add", own->add}, {"scale", own->scale}};
  }
  if (const auto* own = op.get<model::ConvOp>()) {
    return {{"unary", number(own->unary)}, {"carried", {own->state.size, own->state.at}}};
  }
  if (const auto* own = op.get<model::GatedOp>()) {
    return {{"gate", {number(own->gate.buf), own->gate.col}},
            {"heads", own->heads},
            {"inStep", own->stride},
            {"unary", number(own->unary)}};
  }
  if (const auto* own = op.get<model::AddOp>()) return one("scale", own->scale);
  if (const auto* own = op.get<model::ScaleOp>()) return one("scale", own->scale);
  if (const auto* own = op.get<model::SoftCapOp>()) return one("softcap", own->cap);
  if (const auto* own = op.get<model::ClampOp>()) return one("softcap", own->limit);
  if (const auto* own = op.get<model::GateOp>()) return one("heads", own->heads);
  if (const auto* own = op.get<model::MatchNormOp>()) return one("heads", own->heads);
  if (const auto* own = op.get<model::UnaryOp>()) return one("unary", number(own->unary));
  return Json::object();
}

// An operation with the same fields for all kinds. Fields that a kind lacks have neutral values.
Json op_json(const model::Op& op) {
  const model::TwoVecs vecs = op.vecs();
  Json row = {{"kind", number(op.kind())},
              {"layer", op.layer},
              {"in", number(op.in)},
              {"out", number(op.out)},
              {"inCol", op.in_col},
              {"outCol", op.out_col},
              {"inStep", 0},
              {"outStep", 0},
              {"n", op.n},
              {"heads", 1},
              {"vec0", vecs[0]},
              {"vec1", vecs[1]},
              {"parts", Json::array()},
              {"add", false},
              {"scale", 1},
              {"norm", 0},
              {"act", 0},
              {"xielu", {0, 0, 0, 0}},
              {"vecPerHead", false},
              {"rope", 0},
              {"moe", 0},
              {"window", 0},
              {"chunked", false},
              {"alibi", 0},
              {"att", shape_json({}, op.layer)},
              {"unary", 0},
              {"eps", 0},
              {"softcap", 0},
              {"gate", {0, 0}},
              {"carried", {0, 0}}};
  row.update(own_json(op));
  return row;
}

Json mat_json(const model::Mat& m) {
  return {{"name", m.name},          {"type", number(m.type)}, {"rows", m.rows},
          {"cols", m.cols},          {"file", m.file},         {"offset", m.offset},
          {"rowBytes", m.row_bytes}, {"layer", m.layer}};
}

// A layer's KV cache shape. headBytes: bytes from one head's rows to the next head's.
Json cache_json(const kv::LayerShape& l) {
  int64_t head = 0;
  for (const kv::KvPart part : kv::kKvParts) head += l.part(part).total();
  return {{"heads", l.heads},       {"dk", l.dk},        {"dv", l.own_values()},
          {"capacity", l.capacity}, {"headBytes", head}, {"f16", !l.quantized() && !l.evicts},
          {"state", l.state}};
}

// The matrix whose rows are the embeddings; -1: more than a row makes an embedding.
int32_t embedding_of(const Program& p) {
  const auto* own = p.ops.front().get<model::EmbedOp>();
  return own != nullptr && own->mode < 0 && p.tables.size() == 1 ? p.embedding : -1;
}

}  // namespace

std::string GpuExecutor::describe() const {
  const Program& p = cx_.program;
  const session::MemoryPlan& plan = cx_.plan;
  Json ropes = Json::array();
  for (size_t i = 0; i < p.ropes.size(); ++i) {
    ropes.push_back({{"nRot", p.ropes[i].hp.n_rot}, {"neox", p.ropes[i].hp.neox}});
  }
  Json out = {
      {"pass", address(&pass_)},
      {"logitsRows", std::min(plan.batch.logits_rows, plan.batch.n_batch)},
      {"nBatch", plan.batch.n_batch},
      {"nCtx", plan.context.n_ctx},
      {"checkpoints", plan.kv.shape.n_checkpoints},
      {"checkpointEvery", session::kCheckpointEvery},
      {"nVocab", p.hp.n_vocab},
      {"nEmbd", p.hp.n_embd},
      {"normEps", p.hp.norm.eps},
      {"bidirectional", plan.kv.shape.bidirectional},
      {"pool", p.pool},
      {"head", p.head},
      {"embedding", embedding_of(p)},
      {"widths", std::vector<int64_t>(p.width.begin(), p.width.end())},
      {"ropes", std::move(ropes)},
      {"ops", list(p.ops, op_json)},
      {"mats", list(p.mats, mat_json)},
      {"vecs", list(p.vecs, [](const model::Vec& v) { return Json(v.n); })},
      {"moes", list(p.moes, mixture_json)},
      {"caches", list(plan.kv.shape.layers, cache_json)},
  };
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sluice::gpu
