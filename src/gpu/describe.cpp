// Serializes the program to JSON for web/gpu/program.ts, which declares the same types. Fields have
// the names of model/op.h and program.h in camel case, enumerations are numbers. Tensor names are
// included for error messages only. The JSON is written here, since a library's writer took 6 kB of
// the compressed binary.
#include <algorithm>
#include <cmath>
#include <vector>

#include "gpu/gpu_executor.h"

namespace sluice::gpu {
namespace {

using model::Program;
using Json = std::string;
using Numbers = std::vector<double>;

template <typename T>
double number(T value) {
  return static_cast<double>(value);
}

// Twelve digits, which tell all values of a float apart.
Json number_json(double value) {
  if (!std::isfinite(value)) return "null";
  Json out = value < 0 ? "-" : "";
  double left = std::fabs(value);
  constexpr double kInteger = 9007199254740992.0;
  if (left < kInteger && left == std::floor(left)) {
    return out + std::to_string(static_cast<uint64_t>(left));
  }
  int exponent = -11;
  for (; left >= 10; left /= 10) ++exponent;
  for (; left < 1; left *= 10) --exponent;
  out += std::to_string(static_cast<uint64_t>(left * 1e11 + 0.5));
  return out + "e" + std::to_string(exponent);
}

// A name in quotes. It may be a file's.
Json text_json(const std::string& text) {
  Json out = text;
  for (char& c : out) {
    if (c < ' ' || c > '~' || c == '"' || c == '\\') c = '?';
  }
  return '"' + out + '"';
}

template <typename Values, typename Write>
Json list(const Values& values, Write&& write) {
  Json out = "[";
  for (const auto& value : values) {
    if (out.size() > 1) out += ',';
    out += write(value);
  }
  return out + ']';
}

// An object, built with one small call per field. The last field with a name counts.
class Fields {
 public:
  [[gnu::noinline]] Fields& num(const char* name, double value) {
    return add(name, number_json(value));
  }
  [[gnu::noinline]] Fields& flag(const char* name, bool value) {
    return add(name, value ? "true" : "false");
  }
  [[gnu::noinline]] Fields& nums(const char* name, const Numbers& values) {
    return add(name, list(values, number_json));
  }
  [[gnu::noinline]] Fields& add(const char* name, const Json& value) {
    out_ += out_.empty() ? '{' : ',';
    out_ += text_json(name) + ':' + value;
    return *this;
  }
  [[nodiscard]] Json take() { return out_ + '}'; }

 private:
  Json out_;
};

Json shape_json(const model::AttentionShape& att, int32_t layer) {
  return Fields()
      .num("heads", att.heads)
      .num("kvHeads", att.kv_heads)
      .num("dk", att.dk)
      .num("dv", att.dv)
      .num("cache", att.cache)
      .flag("valuesInKeys", att.values_in_keys)
      .flag("causal", att.causal)
      .flag("owned", att.owned_by(layer))
      .take();
}

void add_attention(const model::AttentionOp& own, int32_t layer, Fields& out) {
  const float scale = own.scale != 0
                          ? own.scale
                          : static_cast<float>(1 / std::sqrt(static_cast<double>(own.att.dk)));
  out.add("att", shape_json(own.att, layer))
      .num("scale", scale)
      .num("softcap", own.softcap)
      .num("window", own.window)
      .flag("chunked", own.chunked)
      .num("alibi", own.alibi)
      .num("rope", own.rope)
      .num("ropeCol", own.rope_col)
      .num("relative", own.relative);
  if (own.relative >= 0) out.num("vec0", own.relative_bias);  // such models have no sinks
}

// Operations of cross-attention are attention to the encoder's positions.
void add_encoded(const model::AttentionOp& own, int32_t layer, bool stores, Fields& out) {
  add_attention(own, layer, out);
  out.num("kind", number(model::OpKind::kAttention)).num("encoded", stores ? 1 : 2);
}

Json part_json(const model::MatPart& part) {
  return Fields()
      .num("mat", part.mat)
      .num("bias", part.bias)
      .num("outCol", number(part.out_col))
      .num("factor", part.factor)
      .take();
}

// A mixture of experts as numbers, in the order of web/gpu/program.ts. Matrices are given by the
// first expert's index; the other experts follow.
Json mixture_json(const model::Moe& m) {
  const auto first = [](const std::vector<int32_t>& mats) { return mats.empty() ? -1 : mats[0]; };
  const int32_t all[] = {first(m.gate),
                         m.up[0],
                         m.down[0],
                         static_cast<int32_t>(m.up.size()),
                         m.n_expert,
                         m.n_used,
                         m.n_ff,
                         m.n_group,
                         m.n_group_used,
                         m.shared_by,
                         static_cast<int32_t>(m.gating),
                         m.normalize,
                         m.weigh_input,
                         static_cast<int32_t>(m.act),
                         m.choice_bias,
                         m.gate_bias,
                         m.up_bias,
                         m.down_bias,
                         m.gate_scale,
                         m.up_scale,
                         m.down_scale};
  return Fields()
      .nums("numbers", Numbers(std::begin(all), std::end(all)))
      .num("weightsScale", m.weights_scale)
      .take();
}

// A recurrence as numbers, in the order of web/gpu/program.ts.
Json recurrence_json(const model::Recurrence& r) {
  const int32_t all[] = {static_cast<int32_t>(r.kind),
                         r.heads,
                         r.groups,
                         r.interleaved,
                         r.keys,
                         r.values,
                         r.decay_per_key};
  Numbers numbers(std::begin(all), std::end(all));
  for (const model::Place& at : {r.r, r.k, r.v, r.decay, r.beta, r.a, r.b, r.out}) {
    numbers.push_back(number(at.buf));
    numbers.push_back(at.col);
  }
  return list(numbers, number_json);
}

// Adds the fields specific to each kind of operation that the GPU executor supports. It rejects
// other kinds.
void add_own(const Program& p, const model::Op& op, Fields& out) {
  const auto gate = [&out](model::Place at) { out.nums("gate", {number(at.buf), number(at.col)}); };
  if (const auto* own = op.get<model::EmbedOp>()) out.num("scale", own->scale);
  if (const auto* own = op.get<model::AttentionOp>()) add_attention(*own, op.layer, out);
  if (const auto* own = op.get<model::StoreOp>()) {
    add_encoded({.att = own->att}, op.layer, true, out);
  }
  if (const auto* own = op.get<model::CrossOp>()) {  // of no layer: it stores nothing
    add_encoded({.att = own->att, .scale = own->scale, .softcap = own->softcap}, -1, false, out);
  }
  if (const auto* own = op.get<model::MatmulOp>()) {
    out.add("parts", list(own->parts(), part_json)).flag("add", own->add).num("scale", own->scale);
  }
  if (const auto* own = op.get<model::RopeOp>()) {
    out.num("rope", own->rope).add("att", shape_json(own->att, op.layer));
  }
  if (const auto* own = op.get<model::NormOp>()) {
    out.num("heads", own->heads)
        .num("norm", number(own->kind))
        .flag("vecPerHead", own->per_head)
        .num("eps", own->eps)
        .num("scale", own->scale);
  }
  if (const auto* own = op.get<model::ActivateOp>()) {
    const kernels::Xielu& x = own->xielu;
    out.num("act", number(own->act)).nums("xielu", {x.positive, x.negative, x.linear, x.below});
  }
  if (const auto* own = op.get<model::CopyOp>()) {
    out.num("heads", own->heads)
        .num("inStep", number(own->in_step))
        .num("outStep", number(own->out_step));
  }
  if (const auto* own = op.get<model::HeadMatmulOp>()) {
    out.num("heads", own->heads)
        .num("inStep", own->in_step)
        .num("outStep", own->out_step)
        .num("mat", p.by_head[static_cast<size_t>(own->by_head)][0]);
  }
  if (const auto* own = op.get<model::MixStreamsOp>()) out.num("heads", own->streams);
  if (const auto* own = op.get<model::CorrectStreamsOp>()) out.num("heads", own->streams);
  if (const auto* own = op.get<model::SparsifyOp>()) out.num("scale", own->deviations);
  if (const auto* own = op.get<model::MoeOp>()) {
    out.num("moe", own->moe).flag("add", own->add).num("scale", own->scale);
  }
  if (const model::Carried* own = op.carried()) {
    out.nums("carried", {number(own->size), number(own->at)});
  }
  if (const auto* own = op.get<model::ConvOp>()) out.num("unary", number(own->unary));
  if (const auto* own = op.get<model::DecayOp>()) out.num("heads", own->heads);
  if (const auto* own = op.get<model::StateOp>()) out.num("rec", own->rec);
  if (const auto* own = op.get<model::ScanOp>()) out.num("rec", own->rec);
  if (const auto* own = op.get<model::LerpOp>()) {
    out.num("heads", own->rows).flag("add", own->add);
    gate(own->step);
  }
  if (const auto* own = op.get<model::Rwkv7KeysOp>()) {
    out.num("rec", own->rec).num("eps", own->eps);
    gate(own->rates);
  }
  if (const auto* own = op.get<model::Rwkv7MixOp>()) gate(own->gate);
  if (const auto* own = op.get<model::Rwkv7BonusOp>()) out.num("rec", own->rec);
  if (const auto* own = op.get<model::GatedOp>()) {
    gate(own->gate);
    out.num("heads", own->heads)
        .num("inStep", number(own->stride))
        .num("unary", number(own->unary));
  }
  if (const auto* own = op.get<model::RowsOp>()) {
    out.num("table", own->table).flag("add", own->add).num("scale", own->scale);
  }
  if (const auto* own = op.get<model::AddOp>()) out.num("scale", own->scale);
  if (const auto* own = op.get<model::ScaleOp>()) out.num("scale", own->scale);
  if (const auto* own = op.get<model::SoftCapOp>()) out.num("softcap", own->cap);
  if (const auto* own = op.get<model::ClampOp>()) out.num("softcap", own->limit);
  if (const auto* own = op.get<model::GateOp>()) out.num("heads", own->heads);
  if (const auto* own = op.get<model::MatchNormOp>()) out.num("heads", own->heads);
  if (const auto* own = op.get<model::UnaryOp>()) out.num("unary", number(own->unary));
}

// An operation with the same fields for all kinds. Fields that a kind lacks have neutral values.
Json op_json(const Program& p, const model::Op& op) {
  const model::TwoVecs vecs = op.vecs();
  Fields row;
  row.num("kind", number(op.kind()))
      .num("layer", op.layer)
      .num("in", number(op.in))
      .num("out", number(op.out))
      .num("inCol", number(op.in_col))
      .num("outCol", number(op.out_col))
      .num("n", number(op.n))
      .num("heads", 1)
      .num("vec0", vecs[0])
      .num("vec1", vecs[1])
      .add("parts", "[]")
      .flag("add", false)
      .num("scale", 1)
      .nums("xielu", {0, 0, 0, 0})
      .flag("vecPerHead", false)
      .flag("chunked", false)
      .add("att", shape_json({}, op.layer))
      .nums("gate", {0, 0})
      .nums("carried", {0, 0});
  for (const char* name : {"inStep", "outStep", "norm", "act", "rope", "moe", "window", "alibi",
                           "unary", "eps", "softcap"}) {
    row.num(name, 0);
  }
  add_own(p, op, row);
  return row.take();
}

Json mat_json(const model::Mat& m) {
  return Fields()
      .add("name", text_json(m.name))
      .num("type", number(m.type))
      .num("rows", number(m.rows))
      .num("cols", number(m.cols))
      .num("file", number(m.file))
      .num("offset", number(m.offset))
      .num("rowBytes", number(m.row_bytes))
      .num("layer", number(m.layer))
      .take();
}

// What a layer's KV cache evicts; null: nothing.
Json eviction_json(const kv::LayerShape& l) {
  if (!l.evicts) return "null";
  return Fields()
      .num("window", l.window)
      .num("sinks", l.sinks)
      .num("slots", l.slots)
      .num("ring", l.eviction.ring)
      .num("block", l.eviction.block)
      .num("observers", l.observers)
      .take();
}

// A layer's KV cache shape. headBytes: bytes from one head's rows to the next head's. type: of keys
// and values alike; otherwise that of kQ2, which the GPU does not support.
Json cache_json(const kv::LayerShape& l) {
  int64_t head = 0;
  for (const kv::KvPart part : kv::kKvParts) head += l.part(part).total();
  const kv::KvType type = l.k_type == l.v_type ? l.k_type : kv::KvType::kQ2;
  return Fields()
      .num("heads", number(l.heads))
      .num("dk", number(l.dk))
      .num("dv", number(l.own_values()))
      .num("capacity", number(l.capacity))
      .num("headBytes", number(head))
      .num("type", number(type))
      .num("state", number(l.state))
      .add("evicts", eviction_json(l))
      .take();
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
  const model::TemperatureHParams& t = p.hp.temperature;
  const auto rope = [](const model::Rope& own) {
    return Fields().num("nRot", number(own.hp.n_rot)).flag("neox", own.hp.neox).take();
  };
  return Fields()
      .num("pass", address(&pass_))
      .num("logitsRows", std::min(plan.batch.logits_rows, plan.batch.n_batch))
      .num("nBatch", plan.batch.n_batch)
      .num("parallel", plan.sessions.parallel)
      .num("nCtx", number(plan.context.n_ctx))
      .num("checkpoints", number(plan.kv.shape.n_checkpoints))
      .num("checkpointEvery", session::kCheckpointEvery)
      .num("nVocab", number(p.hp.n_vocab))
      .num("nEmbd", number(p.hp.n_embd))
      .num("normEps", p.hp.norm.eps)
      .nums("temperature", {t.scale, number(t.length), number(t.offset)})
      .flag("bidirectional", plan.kv.shape.bidirectional)
      .num("pool", number(p.pool))
      .num("head", number(p.head))
      .num("decoder", p.decoder)
      .num("embedding", embedding_of(p))
      .nums("tables", Numbers(p.tables.begin(), p.tables.end()))
      .nums("widths", Numbers(p.width.begin(), p.width.end()))
      .add("ropes", list(p.ropes, rope))
      .add("ops", list(p.ops, [&p](const model::Op& op) { return op_json(p, op); }))
      .add("mats", list(p.mats, mat_json))
      .add("vecs", list(p.vecs, [](const model::Vec& v) { return number_json(number(v.n)); }))
      .add("buckets", list(p.buckets, [](const auto& all) { return list(all, number_json); }))
      .add("moes", list(p.moes, mixture_json))
      .add("recurrences", list(p.recurrences, recurrence_json))
      .add("caches", list(plan.kv.shape.layers, cache_json))
      .num("rowGroup", cx_.table.row_group)
      .take();
}

}  // namespace sluice::gpu
