// The program as JSON: fields by the names of model/program.h, enumerations by their numbers, as
// web/gpu/program.ts types them. Of names only those of tensors, for messages.
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

template <typename T>
uint32_t address(const T* place) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(place));
}

template <typename T, typename Write>
Json list(const std::vector<T>& values, Write&& write) {
  Json out = Json::array();
  for (const T& value : values) out.push_back(write(value));
  return out;
}

Json op_json(const model::Op& op) {
  const model::AttentionShape& att = op.att;
  Json parts = Json::array();
  for (int32_t i = 0; i < op.n_parts; ++i) {
    const model::MatPart& part = op.parts[static_cast<size_t>(i)];
    parts.push_back({{"mat", part.mat},
                     {"bias", part.bias},
                     {"outCol", part.out_col},
                     {"factor", part.factor}});
  }
  const bool attends = op.kind == model::OpKind::kAttention;
  const float scale = attends && op.scale == 0
                          ? static_cast<float>(1 / std::sqrt(static_cast<double>(att.dk)))
                          : op.scale;
  return {{"kind", number(op.kind)},
          {"layer", op.layer},
          {"in", number(op.in)},
          {"out", number(op.out)},
          {"inCol", op.in_col},
          {"outCol", op.out_col},
          {"inStep", op.in_step},
          {"outStep", op.out_step},
          {"n", op.n},
          {"heads", op.heads},
          {"vec0", op.vec0},
          {"vec1", op.vec1},
          {"parts", std::move(parts)},
          {"add", op.add},
          {"scale", scale},
          {"norm", number(op.norm)},
          {"act", number(op.act)},
          {"xielu", {op.xielu.positive, op.xielu.negative, op.xielu.linear, op.xielu.below}},
          {"vecPerHead", op.vec_per_head},
          {"rope", op.rope},
          {"window", op.window},
          {"chunked", op.chunked},
          {"alibi", op.alibi},
          {"att",
           {{"heads", att.heads},
            {"kvHeads", att.kv_heads},
            {"dk", att.dk},
            {"dv", att.dv},
            {"cache", att.cache},
            {"valuesInKeys", att.values_in_keys},
            {"causal", att.causal},
            {"owned", att.owned_by(op.layer)}}},
          {"unary", number(op.unary)},
          {"gate", {{"buf", number(op.gate.buf)}, {"col", op.gate.col}}},
          {"stride", op.stride},
          {"eps", op.eps},
          {"moe", op.moe},
          {"table", op.table},
          {"byHead", op.by_head},
          {"softcap", op.softcap}};
}

Json mat_json(const model::Mat& m) {
  return {{"name", m.name},          {"type", number(m.type)},
          {"rows", m.rows},          {"cols", m.cols},
          {"file", m.file},          {"offset", m.offset},
          {"rowBytes", m.row_bytes}, {"layer", m.layer}};
}

Json moe_json(const model::Moe& m) {
  return {{"gate", m.gate},
          {"up", m.up},
          {"down", m.down},
          {"gateBias", m.gate_bias},
          {"upBias", m.up_bias},
          {"downBias", m.down_bias},
          {"gateScale", m.gate_scale},
          {"upScale", m.up_scale},
          {"downScale", m.down_scale},
          {"choiceBias", m.choice_bias},
          {"nExpert", m.n_expert},
          {"nUsed", m.n_used},
          {"nFf", m.n_ff},
          {"nGroup", m.n_group},
          {"nGroupUsed", m.n_group_used},
          {"sharedBy", m.shared_by},
          {"gating", number(m.gating)},
          {"normalize", m.normalize},
          {"weightsScale", m.weights_scale},
          {"weighInput", m.weigh_input},
          {"act", number(m.act)}};
}

// Bytes from one head's rows to the next one's.
Json cache_json(const kv::LayerShape& l) {
  int64_t head = 0;
  for (int i = 0; i < kv::LayerShape::kParts; ++i) head += l.part(i).total();
  return {{"heads", l.heads},
          {"dk", l.dk},
          {"dv", l.own_values()},
          {"capacity", l.capacity},
          {"headBytes", head},
          {"f16", !l.quantized()},
          {"recurrent", l.state > 0}};
}

}  // namespace

std::string GpuExecutor::describe() const {
  const Program& p = engine_.program();
  const session::MemoryPlan& plan = engine_.plan();
  const session::WorkingMemory& working = engine_.working();
  Json ropes = Json::array();
  for (size_t i = 0; i < p.ropes.size(); ++i) {
    ropes.push_back({{"address", address(working.rope_table(i))},
                     {"nRot", p.ropes[i].hp.n_rot},
                     {"neox", p.ropes[i].hp.neox}});
  }
  Json out = {
      {"pass", address(&pass_)},
      {"x", address(working.buffer(model::Buf::kX))},
      {"logits", address(working.buffer(model::Buf::kLogits))},
      {"logitsRows", std::min(plan.logits_rows, plan.n_batch)},
      {"nBatch", plan.n_batch},
      {"nCtx", plan.n_ctx},
      {"nVocab", p.hp.n_vocab},
      {"nEmbd", p.hp.n_embd},
      {"normEps", p.hp.norm_eps},
      {"whole", plan.kv_shape.whole},
      {"pool", p.pool},
      {"head", p.head},
      {"widths", std::vector<int64_t>(p.width.begin(), p.width.end())},
      {"ropes", std::move(ropes)},
      {"ops", list(p.ops, op_json)},
      {"mats", list(p.mats, mat_json)},
      {"vecs", list(p.vecs, [](const model::Vec& v) { return Json(v.n); })},
      {"moes", list(p.moes, moe_json)},
      {"caches", list(plan.kv_shape.layers, cache_json)},
  };
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sluice::gpu
