// `sluice info`: what a model is and how it would fit, from its header alone.
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/cli.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

json plan_json(const session::MemoryPlan& plan) {
  return {{"budget", plan.budget},
          {"total", plan.total()},
          {"minimum", plan.minimum},
          {"contextLength", plan.n_ctx},
          {"batch", plan.n_batch},
          {"threads", plan.n_threads},
          {"tokenizer", plan.tokenizer},
          {"vectors", plan.vectors},
          {"kv", plan.kv},
          {"activations", plan.activations},
          {"scratch", plan.scratch},
          {"other", plan.other},
          {"pinned", plan.weights.pinned_bytes},
          {"ring", plan.weights.ring_bytes()},
          {"slots", plan.weights.n_slots},
          {"slotBytes", plan.weights.slot_bytes},
          {"units", plan.weights.units.size()},
          {"bytesPerPass", plan.weights.streamed_bytes},
          {"embeddingHeld", plan.weights.embedding_held},
          {"resident", plan.weights.streamed_bytes == 0}};
}

json model_json(const gguf::Header& header, const session::Inspection& found) {
  const model::HParams& hp = found.program.hp;
  uint64_t bytes = 0, parameters = 0;
  std::map<std::string, uint64_t> types;
  for (const gguf::Tensor& t : header.tensors) {
    bytes += t.bytes;
    parameters += t.cols() * t.rows();
    const gguf::TypeInfo* info = gguf::type_info(t.type);
    types[info != nullptr ? info->name : "?"] += t.bytes;
  }
  return {{"architecture", hp.arch},
          {"name", hp.name},
          {"parameters", parameters},
          {"bytes", bytes},
          {"types", types},
          {"layers", hp.n_layer},
          {"embedding", hp.n_embd},
          {"feedForward", hp.n_ff},
          {"heads", hp.n_head},
          {"kvHeads", hp.n_head_kv},
          {"headSize", hp.head_dim_k},
          {"vocabulary", hp.n_vocab},
          {"trainedContext", hp.n_ctx_train},
          {"experts", hp.n_expert},
          {"tiedHead", found.program.head == found.program.embedding},
          {"files", header.n_files},
          {"tensors", header.tensors.size()},
          {"kernels", found.table->name}};
}

void print_text(const json& model, const session::MemoryPlan& plan) {
  const auto line = [](const char* label, const std::string& value) {
    std::printf("%-16s %s\n", label, value.c_str());
  };
  const auto number = [&model](const char* key) {
    return std::to_string(model[key].get<int64_t>());
  };
  line("architecture", model["architecture"].get<std::string>());
  line("name", model["name"].get<std::string>());
  line("parameters", number("parameters"));
  line("weights", human_bytes(model["bytes"].get<uint64_t>()));
  for (const auto& [type, bytes] : model["types"].items()) {
    line("", type + " " + human_bytes(bytes.get<uint64_t>()));
  }
  line("layers", number("layers"));
  line("widths", number("embedding") + " hidden, " + number("feedForward") + " feed-forward");
  line("heads", number("heads") + " of " + number("headSize") + ", " + number("kvHeads") +
                    " for keys and values");
  line("vocabulary", number("vocabulary"));
  line("context",
       number("trainedContext") + " trained, " + std::to_string(plan.n_ctx) + " planned");
  std::printf("\nmemory plan%s\n",
              plan.budget > 0 ? (" for a budget of " + human_bytes(plan.budget)).c_str() : "");
  line("  pinned", human_bytes(plan.weights.pinned_bytes));
  line("  ring", human_bytes(plan.weights.ring_bytes()) + " (" +
                     std::to_string(plan.weights.n_slots) + " slots)");
  line("  KV cache", human_bytes(plan.kv));
  line("  activations", human_bytes(plan.activations));
  line("  tokenizer", human_bytes(plan.tokenizer));
  line("  other", human_bytes(plan.vectors + plan.scratch + plan.other));
  line("  total", human_bytes(plan.total()));
  line("  smallest", human_bytes(plan.minimum));
  line("  per pass", human_bytes(plan.weights.streamed_bytes) + " streamed in " +
                         std::to_string(plan.weights.units.size()) + " units");
}

int info(const Common& common) {
  Result<native::LoadOptions> load = load_options(common);
  if (!load.ok()) return fail(load.status());
  Result<native::ModelHeader> header = native::read_header(common.model, load->source);
  if (!header.ok()) return fail(header.status());
  Result<session::Inspection> found = session::inspect(header->header, load->engine);
  if (!found.ok()) return fail(found.status());
  json out = model_json(header->header, *found);
  if (common.json) {
    out["plan"] = plan_json(found->plan);
    std::printf("%s\n", out.dump(2, ' ', false, json::error_handler_t::replace).c_str());
  } else {
    print_text(out, found->plan);
  }
  return 0;
}

}  // namespace

void add_info(CLI::App& app, int* status) {
  auto common = std::make_shared<Common>();
  CLI::App* sub = app.add_subcommand("info", "Show a model's header and its memory plan");
  add_common(*sub, *common);
  sub->callback([common, status] { *status = info(*common); });
}

}  // namespace sluice::cli
