// `sluice info`: what a model is and how it would fit, from its header alone.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/cli.h"
#include "session/report.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

// Whole numbers print as such.
json to_json(const session::ReportValue& value) {
  if (const double* number = std::get_if<double>(&value)) {
    return static_cast<int64_t>(*number);
  }
  if (const bool* flag = std::get_if<bool>(&value)) return *flag;
  return std::get<std::string>(value);
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
  json out;
  const session::ReportSink sink = [&out](const char* section, const char* key,
                                          const session::ReportValue& value) {
    (section != nullptr ? out[section] : out)[key] = to_json(value);
  };
  session::report_model(header->header, *found, sink);
  session::report_plan(found->plan, sink);
  if (common.json) {
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
