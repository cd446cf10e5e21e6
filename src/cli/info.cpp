// `sluice info`: prints a model's metadata and memory plan from its header alone.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/byte_size.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/info_projector.h"
#include "cli/pictures.h"
#include "cli/trace_hits.h"
#include "generate/draft_pair.h"
#include "gguf/printable.h"
#include "session/speed_estimate.h"

namespace sluice::cli {
namespace {

using nlohmann::json;

struct InfoOptions {
  Common common;
  PictureOptions pictures;
  std::string expert_trace;
  std::string read_rate;  // "500M"
};

// Prints whole numbers without a fraction.
json to_json(const session::ReportValue& value) {
  if (const double* number = std::get_if<double>(&value)) {
    const auto whole = static_cast<int64_t>(*number);
    return static_cast<double>(whole) == *number ? json(whole) : json(*number);
  }
  if (const bool* flag = std::get_if<bool>(&value)) return *flag;
  return std::get<std::string>(value);
}

void line(const char* label, const std::string& value) {
  std::printf("%-16s %s\n", label, gguf::printable(value, 256).c_str());
}

// "streamBuffer" as "stream buffer".
std::string words_of(std::string_view name) {
  std::string out;
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper) out += ' ';
    out += upper ? static_cast<char>(c | 0x20) : c;
  }
  return out;
}

// The KV cache in each type, and the longest context that it allows.
void print_kv_types(const json& model, bool limited) {
  for (const auto& [type, bytes] : model["kvBytes"].items()) {
    std::string text = type + " " + human_bytes(bytes.get<uint64_t>());
    if (limited) {
      const int64_t longest = model["maxContextByKvType"][type].get<int64_t>();
      text += ", longest context " + std::to_string(longest);
    }
    line("", text);
  }
}

void print_text(const json& model, const session::MemoryPlan& plan) {
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
  line("widths",
       number("embeddingLength") + " hidden, " + number("feedForwardLength") + " feed-forward");
  line("heads", number("attentionHeads") + " of " + number("headDim") + ", " + number("kvHeads") +
                    " KV heads");
  line("vocabulary", number("vocabSize"));
  line("modalities", model["modalities"].size() > 1 ? "text, image" : "text");
  line("kernels", model["kernels"].get<std::string>() + ", " +
                      std::to_string(plan.threads.n_threads) +
                      (plan.threads.n_threads == 1 ? " thread" : " threads"));
  line("context", number("trainContextLength") + " trained, " + std::to_string(plan.context.n_ctx) +
                      " planned (" + session::context_from_name(plan.context.from) + ")");
  std::printf(
      "\nmemory plan%s\n",
      plan.budget.bytes > 0 ? (" for a budget of " + human_bytes(plan.budget.bytes)).c_str() : "");
  for (const session::MemoryPart& part : plan.parts()) {
    const std::string_view name = part.name;
    std::string size = human_bytes(part.bytes);
    if (name == "streamBuffer") size += " (" + std::to_string(plan.weights.n_slots) + " slots)";
    if (name == "kv") size += std::string(" as ") + kv::kv_types_name(plan.kv.types);
    if (part.bytes > 0) line(("  " + words_of(name)).c_str(), size);
    if (name == "kv") print_kv_types(model, plan.budget.bytes > 0);
  }
  line("  total", human_bytes(plan.total()));
  line("  smallest", human_bytes(plan.budget.minimum));
  line("  per pass", human_bytes(plan.weights.streamed_bytes) + " streamed in " +
                         std::to_string(plan.weights.units.size()) + " units");
}

void print_speed(const json& speed) {
  const auto line = [&speed](const char* label, const char* key, double unit, const char* words) {
    if (!speed.contains(key)) return;
    const std::string value = human_number(speed[key].get<double>() / unit);
    std::printf("%-16s %s %s\n", label, value.c_str(), words);
  };
  std::printf("\nestimated speed\n");
  line("  decode", "tokensPerSecond", 1, "tokens/s");
  line("  compute bound", "computeTokensPerSecond", 1, "tokens/s at most");
  line("  storage", "cacheBytesPerSecond", 1e6, "MB/s");
  line("  network", "networkBytesPerSecond", 1e6, "MB/s");
  line("  download", "downloadSeconds", 1, "s left");
}

// What the estimate assumes of a mixture's router.
void print_experts(const json& speed) {
  if (!speed.contains("expertHitRate")) return;
  const auto percent = [&speed](const char* key) {
    return human_number(100 * speed[key].get<double>()) + " %";
  };
  const bool traced = speed["expertHitRateFrom"] == "trace";
  line("  experts", percent("expertsInMemory") + " in memory, hit rate " +
                        percent("expertHitRate") +
                        (traced ? " in the trace" : " if chosen uniformly at random"));
  const double bytes = speed["bytesReadPerToken"].get<double>();
  line("  reads", human_bytes(static_cast<uint64_t>(bytes)) + " per token");
}

// Estimates how fast weights can be read: measures part of a local file, or takes the rate at which
// the header was downloaded in `ms`. The download rate also gives the remaining download time.
session::ReadSpeed read_speed(const native::ModelHeader& header, double ms,
                              const session::ReportSink& sink) {
  constexpr uint64_t kSample = 64 << 20;
  constexpr double kMaxMs = 100;
  io::ByteSource& source = *header.sources[0];
  uint64_t fetched = 0, missing = 0;
  for (const auto& part : header.sources) {
    fetched += part->bytes_fetched();
    missing += part->bytes_missing();
  }
  const double network = ms > 0 ? static_cast<double>(fetched) * 1000 / ms : 0;
  if (network > 0) sink("speed", "networkBytesPerSecond", network);
  if (missing == 0) {
    sink("speed", "downloadSeconds", 0.0);
    const uint64_t size = source.size();
    const uint64_t middle = size > 2 * kSample ? size / 2 : 0;
    const Result<io::ReadRate> rate = io::measure_reads(source, middle, kSample, kMaxMs);
    if (!rate.ok()) return {};
    constexpr double kInMemory = 0.75;  // share of time copying from the page cache
    return {rate->bytes_per_second, rate->busy, rate->busy > kInMemory};
  }
  if (network > 0) sink("speed", "downloadSeconds", static_cast<double>(missing) / network);
  return {network, 0, false};
}

// The hit rate of the trace under the plan, if there is one. Errors: read_expert_trace's;
// kInvalidArgument, if the model is no such mixture.
Result<std::optional<double>> traced_hits(const std::string& path,
                                          const session::Inspection& found) {
  if (path.empty()) return std::optional<double>();
  const Result<ExpertTrace> trace = read_expert_trace(path);
  if (!trace.ok()) return trace.status();
  SLUICE_RETURN_IF_ERROR(check_experts(*trace, found.program));
  const auto layers = static_cast<int32_t>(found.program.moes.size());
  const Result<double> rate =
      trace_hit_rate(*trace, layers, session::streamed_bytes(found).in_memory);
  if (!rate.ok()) return rate.status();
  return std::optional<double>(*rate);
}

int info(const InfoOptions& options) {
  const Common& common = options.common;
  Result<native::LoadOptions> load = load_options(common);
  if (!load.ok()) return fail(load.status());
  const double start = monotonic_ms();
  Result<native::ModelHeader> header = native::read_header(common.model, load->source);
  if (!header.ok()) return fail(header.status());
  if (is_projector(header->header)) return info_of_projector(header->header, common.json);
  const double header_ms = monotonic_ms() - start;
  Result<native::AdapterFiles> adapters = native::AdapterFiles::open(load->adapters, load->source);
  if (!adapters.ok()) return fail(adapters.status());
  load->engine.adapters = adapters->sources();
  load->engine.base_bytes += header->held;
  const auto pictures = open_pictures(options.pictures, common.model, /*needed=*/false, &*load);
  if (!pictures.ok()) return fail(pictures.status());
  json out;
  out["modalities"] = json::array({"text"});
  if (*pictures != nullptr) out["modalities"].push_back("image");
  const auto sink = [&out](const char* section, const char* key,
                           const session::ReportValue& value) {
    (section != nullptr ? out[section] : out)[key] = to_json(value);
  };
  const Result<session::Inspection> found =
      generate::inspect(header->header, load->engine, nullptr, 0, sink);
  if (!found.ok()) return fail(found.status());
  const auto hits = traced_hits(options.expert_trace, *found);
  if (!hits.ok()) return fail(hits.status());
  session::ReadSpeed reading = read_speed(*header, header_ms, sink);
  if (!options.read_rate.empty()) {
    reading = {static_cast<double>(*parse_size(options.read_rate)), 0, false};
  }
  session::report_speed(*found, reading, sink, *hits);
  if (!found->program.moes.empty()) {
    out["speed"]["expertHitRateFrom"] = hits->has_value() ? "trace" : "uniform";
  }
  if (common.json) {
    print_json(out, 2);
  } else {
    print_text(out, found->plan);
    print_speed(out["speed"]);
    print_experts(out["speed"]);
  }
  return 0;
}

}  // namespace

void add_info(CLI::App& app, int* status) {
  auto options = std::make_shared<InfoOptions>();
  CLI::App* sub = add_command(app, kInspect, "info", "Show a model's header, memory plan and speed",
                              "sluice info model.gguf --memory-budget 512M");
  add_common(*sub, options->common);
  add_lora(*sub, options->common);
  add_pictures(*sub, options->pictures, /*with_images=*/false);
  sub->add_option("--read-rate", options->read_rate,
                  "bytes per second at which weights stream, such as 500M (default: measured)")
      ->check(byte_size(1, UINT64_MAX));
  sub->add_option("--expert-trace", options->expert_trace,
                  "estimate the hit rate of a mixture's experts from this trace "
                  "(default: uniform routing)");
  sub->callback([=] { *status = info(*options); });
}

}  // namespace sluice::cli
