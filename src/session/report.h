// Properties of a model and its plan as named values. `sluice info` and Engine.inspect print the
// same ones, each with its platform's JSON library.
#pragma once

#include <concepts>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "session/engine.h"
#include "session/planner.h"

namespace sluice::session {

using ReportValue = std::variant<double, bool, std::string>;

// Refers to a function that receives the values, and lives no longer than it. std::function would
// cost engines for the web half a kilobyte for each.
class ReportSink {
 public:
  template <typename F>
  requires(!std::same_as<F, ReportSink>) ReportSink(const F& function)
      : function_(&function),
        call_([](const void* to, const char* section, const char* key, ReportValue value) {
          (*static_cast<const F*>(to))(section, key, std::move(value));
        }) {}

  // `section` is null at the top level; sections are objects one level deep.
  void operator()(const char* section, const char* key, ReportValue value) const {
    call_(function_, section, key, std::move(value));
  }

 private:
  const void* function_;
  void (*call_)(const void*, const char*, const char*, ReportValue);
};

// Architecture, sizes, quantization types, special tokens, chat template.
void report_model(const gguf::Header& header, const Inspection& found, const ReportSink& sink);
// The memory plan, in bytes, in section "plan". "total" is the sum of MemoryPlan::parts() and
// "draft", what the plan of a draft model (null: none) has in total; `minimum` is then the smallest
// budget of both.
void report_plan(const MemoryPlan& plan, const MemoryPlan* draft, uint64_t minimum,
                 const ReportSink& sink);
// For each KV cache type that the model supports: the bytes of the plan's KV cache with it in
// "kvBytes", and, with a budget, the longest context that it allows in "maxContextByKvType".
// `options`: those of the plan; `rule`: which budget they need.
void report_kv_types(const Inspection& found, const EngineOptions& options, const BudgetRule& rule,
                     const ReportSink& sink);

// First unit of every layer, in order of use; one extra entry: where the output head begins.
[[nodiscard]] std::vector<uint32_t> layer_units(const Inspection& found);

// Multiply-adds and weight bytes per generated token.
struct TokenWork {
  double macs = 0;
  double bytes = 0;
};
[[nodiscard]] TokenWork work_per_token(const model::Program& program);

}  // namespace sluice::session
