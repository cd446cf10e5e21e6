#include "cli/expert_trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/cli.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

constexpr const char* kTraceFormat = "sluice-expert-trace";
constexpr int32_t kMaxTraced = 1 << 16;  // layers, experts

Status bad_line(size_t line, const char* what) {
  return error(Code::kInvalidArgument, "expert trace, line %zu: %s", line, what);
}

bool read_count(const json& head, const char* key, int32_t* out) {
  const auto it = head.find(key);
  if (it == head.end() || !it->is_number_unsigned() || *it < 1 || *it > kMaxTraced) return false;
  *out = it->get<int32_t>();
  return true;
}

// Appends the experts of one token in one layer.
bool read_choice(const json& list, ExpertTrace* out) {
  if (!list.is_array() || list.size() > static_cast<size_t>(out->used)) return false;
  const size_t first = out->choices.size();
  for (const json& expert : list) {
    if (!expert.is_number_unsigned() || expert >= out->experts) return false;
    const int32_t e = expert.get<int32_t>();
    const auto begin = out->choices.begin() + static_cast<ptrdiff_t>(first);
    if (std::find(begin, out->choices.end(), e) != out->choices.end()) return false;
    out->choices.push_back(e);
  }
  out->choices.resize(first + static_cast<size_t>(out->used), -1);
  return true;
}

}  // namespace

Result<ExpertTrace> read_expert_trace(const std::string& path) {
  const Result<std::string> text = read_text(path);
  if (!text.ok()) return text.status();
  ExpertTrace out;
  std::istringstream lines(*text);
  std::string line;
  for (size_t n = 1; std::getline(lines, line); ++n) {
    if (line.empty()) continue;
    const json value = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (out.layers == 0) {
      const bool known = value.is_object() && value.value("format", json()) == kTraceFormat &&
                         value.value("version", json()) == 1;
      if (!known || !read_count(value, "layers", &out.layers) ||
          !read_count(value, "experts", &out.experts) || !read_count(value, "used", &out.used) ||
          out.used > out.experts) {
        return bad_line(n, "not the head of a sluice-expert-trace of version 1");
      }
      continue;
    }
    bool good = value.is_array() && value.size() == static_cast<size_t>(out.layers);
    for (size_t layer = 0; good && layer < value.size(); ++layer) {
      good = read_choice(value[layer], &out);
    }
    if (!good) return bad_line(n, "not a list of different experts for every layer");
  }
  if (out.choices.empty()) return error(Code::kInvalidArgument, "the expert trace has no tokens");
  return out;
}

Status check_experts(const ExpertTrace& trace, const model::Program& program) {
  for (const model::Moe& moe : program.moes) {
    const auto experts = static_cast<int32_t>(moe.up.size());
    if (experts == trace.experts && moe.n_used == trace.used) continue;
    return error(Code::kInvalidArgument,
                 "the expert trace uses %d of %d experts, and this model %d of %d", trace.used,
                 trace.experts, moe.n_used, experts);
  }
  if (program.moes.empty()) {
    return error(Code::kInvalidArgument, "an expert trace needs a mixture of experts");
  }
  return {};
}

Status ExpertReplay::attach(const model::Program& program, session::Executor& executor,
                            bool ascending) {
  SLUICE_RETURN_IF_ERROR(check_experts(trace_, program));
  executor.hook_routing({[](void* context, int32_t mixture, int32_t n_tokens, int32_t n_used,
                            session::Choice* choices) {
                           static_cast<ExpertReplay*>(context)->replace(mixture, n_tokens, n_used,
                                                                        choices);
                         },
                         this, ascending});
  return {};
}

void ExpertReplay::replace(int32_t mixture, int32_t n_tokens, int32_t n_used,
                           session::Choice* choices) {
  const size_t first = tokens_.first(mixture, n_tokens);
  for (int32_t t = 0; t < n_tokens; ++t) {
    const size_t token = (first + static_cast<size_t>(t)) % trace_.tokens();
    const int32_t* experts = trace_.at(token, mixture % trace_.layers);
    if (experts[0] < 0) continue;
    for (int32_t k = 0; k < n_used; ++k) choices[t * n_used + k].expert = experts[k];
  }
}

Status ExpertRecorder::attach(const model::Program& program, session::Executor& executor) {
  if (program.moes.empty()) {
    return error(Code::kInvalidArgument, "recording experts needs a mixture of experts");
  }
  trace_.layers = static_cast<int32_t>(program.moes.size());
  for (const model::Moe& moe : program.moes) {
    trace_.experts = std::max(trace_.experts, static_cast<int32_t>(moe.up.size()));
    trace_.used = std::max(trace_.used, moe.n_used);
  }
  executor.hook_routing({[](void* context, int32_t mixture, int32_t n_tokens, int32_t n_used,
                            session::Choice* choices) {
                           static_cast<ExpertRecorder*>(context)->record(mixture, n_tokens, n_used,
                                                                         choices);
                         },
                         this});
  return {};
}

void ExpertRecorder::record(int32_t mixture, int32_t n_tokens, int32_t n_used,
                            const session::Choice* choices) {
  const size_t first = tokens_.first(mixture, n_tokens);
  const auto used = static_cast<size_t>(trace_.used);
  const size_t per_token = static_cast<size_t>(trace_.layers) * used;
  trace_.choices.resize(
      std::max(trace_.choices.size(), (first + static_cast<size_t>(n_tokens)) * per_token), -1);
  for (int32_t t = 0; t < n_tokens; ++t) {
    int32_t* out = trace_.choices.data() + (first + static_cast<size_t>(t)) * per_token +
                   static_cast<size_t>(mixture) * used;
    for (int32_t k = 0; k < n_used; ++k) {
      const int32_t expert = choices[t * n_used + k].expert;
      if (expert >= 0) *out++ = expert;  // else merged into an earlier choice
    }
  }
}

std::string ExpertRecorder::text() const {
  const json head = {{"format", kTraceFormat},
                     {"version", 1},
                     {"layers", trace_.layers},
                     {"experts", trace_.experts},
                     {"used", trace_.used}};
  std::string out = head.dump() + "\n";
  for (size_t t = 0; t < trace_.tokens(); ++t) {
    json token = json::array();
    for (int32_t layer = 0; layer < trace_.layers; ++layer) {
      const int32_t* experts = trace_.at(t, layer);
      json list = json::array();
      for (int32_t k = 0; k < trace_.used && experts[k] >= 0; ++k) list.push_back(experts[k]);
      token.push_back(std::move(list));
    }
    out += token.dump() + "\n";
  }
  return out;
}

}  // namespace sluice::cli
