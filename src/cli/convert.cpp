// `sluice convert`: writes a model as a GGUF or QSF file with other quantization types, and reports
// the error of each tensor.
#include "convert/convert.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/atomic_file.h"
#include "cli/calibrate.h"
#include "cli/log_likelihood.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/sensitivity.h"
#include "gguf/printable.h"
#include "native/hugging_face.h"

namespace sluice::cli {
namespace {

using Known = convert::Sensitivity::Known;

struct ConvertOptions {
  std::string in, out, type, imatrix, save_imatrix, calibrate, memory_budget, cache_dir,
      target_size, compress, cluster_embedding, perplexity;
  std::string sensitivity;
  std::vector<std::string> tensor_types;
  HostOptions hosts;
  io::OpenOptions source;  // made of cache_dir and hosts
  double min_cosine = 0.99;
  int threads = 0;
  bool pure = false, json = false, cluster_head = false, force = false, quiet = false;
};

class FileSink final : public convert::Sink {
 public:
  FileSink(AtomicFile* file, const std::string& path) : file_(file), path_(path) {}
  [[nodiscard]] Status write(std::span<const uint8_t> bytes) override {
    file_->write(bytes.data(), bytes.size());
    return state();
  }
  [[nodiscard]] Status patch(uint64_t offset, std::span<const uint8_t> bytes) override {
    file_->write_at(offset, bytes.data(), bytes.size());
    return state();
  }

 private:
  [[nodiscard]] Status state() const {
    if (!file_->failed()) return {};
    return error(Code::kIo, "cannot write \"%.256s\"", path_.c_str());
  }

  AtomicFile* file_;
  const std::string& path_;
};

Result<convert::Imatrix> read_importance(const std::string& path, uint64_t most) {
  Result<std::unique_ptr<io::ByteSource>> source = io::open_source(path);
  if (!source.ok()) return source.status();
  if ((*source)->size() > most / 2) {
    return error(Code::kBudgetTooSmall,
                 "the importance matrix takes more than half of --memory-budget");
  }
  std::vector<uint8_t> bytes((*source)->size());
  SLUICE_RETURN_IF_ERROR((*source)->read(0, bytes));
  Result<convert::Imatrix> out = convert::Imatrix::parse(bytes);
  if (out.ok()) return out;
  return error(out.status().code(), "--imatrix \"%.256s\": %s", path.c_str(),
               out.status().message().c_str());
}

// The files that the conversion writes, each completely or not at all.
struct Outputs {
  std::optional<AtomicFile> model, imatrix;

  // Opens them before the slow steps. Errors: AtomicFile::create's; kInvalidArgument for a file
  // that exists, without --force.
  [[nodiscard]] Status open(const ConvertOptions& options) {
    for (const auto& [path, file] :
         {std::pair{&options.out, &model}, {&options.save_imatrix, &imatrix}}) {
      if (path->empty()) continue;
      const auto when = options.force ? Existing::kReplace : Existing::kKeep;
      Result<AtomicFile> opened = AtomicFile::create(*path, options.in, when);
      if (!opened.ok()) return opened.status();
      file->emplace(std::move(*opened));
    }
    return {};
  }
};

Status write_importance(const convert::Imatrix& importance, const ConvertOptions& options,
                        AtomicFile& file) {
  const std::string bytes = importance.file(options.calibrate);
  file.write(bytes.data(), bytes.size());
  return file.finish();
}

// What was measured on the texts of --calibrate and --perplexity.
struct Measured {
  Calibrated calibrated;
  MeasuredSensitivity sensitivity;
  std::string unmeasured;               // why sensitivities could not be measured; "" if they could
  std::optional<Scored> before, after;  // on the text of --perplexity
};

void print_report(const convert::Report& report, const Measured& measured) {
  const std::vector<LayerAblation>& layers = measured.calibrated.layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    std::printf("layer %zu: cosine %.4f, ", i, layers[i].cosine);
    if (layers[i].divergence < 0) {
      std::printf("never skipped\n");
    } else {
      std::printf("KL divergence without it %.4f nats\n", layers[i].divergence);
    }
  }
  for (const ExitValue& e : measured.calibrated.exits.layers) {
    std::printf("early exit after layer %d: %.1f %% of tokens settled, classifier AUC %.3f\n",
                e.layer, 100 * e.settled, e.told);
  }
  for (const convert::TensorReport& t : report.tensors) {
    std::printf("%-40s %-7s -> %-7s %10llu", gguf::printable(t.name, 40).c_str(),
                gguf::type_info(t.from)->name, gguf::type_info(t.to)->name,
                static_cast<unsigned long long>(t.bytes));
    if (t.mean_squared_error > 0) {
      std::printf("  mse %.3e  cosine %.6f", t.mean_squared_error, t.cosine);
    }
    if (t.outliers != convert::Outliers::kNone) {
      std::printf("  outliers %.2f %% %s", 100 * t.outlier_share, name_of(t.outliers));
    }
    if (t.sensitivity.known() != Known::kNot && t.bytes < t.bytes_before) {
      std::printf("  sensitivity %.3g (%s)", t.sensitivity.slope(), name_of(t.sensitivity.known()));
    }
    std::printf("%s%s\n", t.weighted ? "  weighted" : "",
                t.fallback ? "  (row length does not fit the requested type)" : "");
  }
  if (const MeasuredSensitivity& s = measured.sensitivity; !s.probes.empty()) {
    std::printf("sensitivities by %s: %zu measurements on %zu tokens%s, %zu positions compared\n",
                s.how, s.probes.size(), s.tokens,
                s.calibration_text ? " generated by the model" : "", s.positions);
  } else if (!measured.unmeasured.empty()) {
    std::printf("sensitivities were not measured, so all tensors' errors count equally: %s\n",
                measured.unmeasured.c_str());
  }
  if (measured.after.has_value()) {
    const Scored &before = *measured.before, &after = *measured.after;
    std::printf("perplexity %.4f +- %.4f before, %.4f +- %.4f after, of %zu tokens\n",
                before.perplexity(), before.perplexity() * before.error, after.perplexity(),
                after.perplexity() * after.error, after.scores.size());
  }
  std::printf("converted %s of weights to a file of %s\n", human_bytes(report.bytes_before).c_str(),
              human_bytes(report.bytes).c_str());
}

nlohmann::json sensitivity_json(const Measured& measured) {
  if (!measured.unmeasured.empty()) return {{"unmeasured", measured.unmeasured}};
  const MeasuredSensitivity& s = measured.sensitivity;
  if (s.probes.empty()) return nullptr;
  return {{"by", s.how},
          {"measurements", s.probes.size()},
          {"tokens", s.tokens},
          {"compared", s.positions},
          {"ownText", s.calibration_text}};
}

nlohmann::json perplexity_json(const Measured& measured) {
  if (!measured.after.has_value()) return nullptr;
  const auto one = [](const Scored& s) -> nlohmann::json {
    return {{"perplexity", s.perplexity()}, {"standardError", s.perplexity() * s.error}};
  };
  return {{"before", one(*measured.before)},
          {"after", one(*measured.after)},
          {"tokens", measured.after->scores.size()}};
}

void print_report_json(const convert::Report& report, const Measured& measured) {
  nlohmann::json layers = nlohmann::json::array();
  for (const LayerAblation& l : measured.calibrated.layers) {
    layers.push_back({{"cosine", l.cosine}, {"stays", l.divergence < 0}});
    if (l.divergence >= 0) layers.back()["divergence"] = l.divergence;
  }
  nlohmann::json exits = nlohmann::json::array();
  for (const ExitValue& e : measured.calibrated.exits.layers) {
    exits.push_back({{"layer", e.layer}, {"settled", e.settled}, {"told", e.told}});
  }
  nlohmann::json tensors = nlohmann::json::array();
  for (const convert::TensorReport& t : report.tensors) {
    tensors.push_back({{"name", t.name},
                       {"from", gguf::type_info(t.from)->name},
                       {"type", gguf::type_info(t.to)->name},
                       {"fallback", t.fallback},
                       {"weighted", t.weighted},
                       {"values", t.values},
                       {"bytes", t.bytes},
                       {"mse", t.mean_squared_error},
                       {"cosine", t.cosine}});
    if (t.outliers != convert::Outliers::kNone) {
      tensors.back()["outliers"] = {
          {"share", t.outlier_share}, {"error", t.outlier_error}, {"are", name_of(t.outliers)}};
    }
    if (t.sensitivity.known() == Known::kNot) continue;
    tensors.back()["sensitivity"] = t.sensitivity.slope();
    tensors.back()["sensitivityOf"] = name_of(t.sensitivity.known());
  }
  print_json({{"tensors", tensors},
              {"layers", layers},
              {"exits", exits},
              {"sensitivity", sensitivity_json(measured)},
              {"perplexity", perplexity_json(measured)},
              {"bytesBefore", report.bytes_before},
              {"bytes", report.bytes},
              {"memory", report.memory}},
             1);
}

// Measures sensitivities for --target-size, unless --sensitivity is off. A model that cannot be
// measured is an error only with --sensitivity measured.
Status look_at_sensitivity(const ConvertOptions& options, convert::Options* wanted,
                           Measured* measured) {
  const std::string& how = options.sensitivity;
  if (!how.empty() && options.target_size.empty()) {
    return error(Code::kInvalidArgument, "--sensitivity needs --target-size");
  }
  if (options.target_size.empty() || how == "off") return {};
  SensitivityOptions from;
  from.model = options.in;
  from.source = options.source;
  from.text_file = options.calibrate;
  from.memory_budget = wanted->memory_budget;
  from.threads = options.threads;
  from.importance = wanted->importance;
  Progress progress("measuring tensors", Unit::kPercent, options.quiet);
  from.on_progress = [&progress](double share) { progress.update_share(share); };
  Result<MeasuredSensitivity> read = measure_sensitivity(from);
  if (read.ok()) {
    measured->sensitivity = std::move(*read);
    wanted->probes = measured->sensitivity.probes;
    return {};
  }
  if (how == "measured" || !says_unmeasurable(read.status())) return read.status();
  measured->unmeasured = read.status().message();
  return {};
}

// Scores the text of --perplexity with `model`. Does nothing if the option was not given.
Status look_at_perplexity(const ConvertOptions& options, const std::string& model,
                          const std::string& text, const convert::Options& wanted,
                          std::optional<Scored>* out) {
  if (options.perplexity.empty()) return {};
  Common common;
  common.model = model;
  common.memory_budget = std::to_string(wanted.memory_budget);
  common.threads = options.threads;
  common.cache_dir = options.cache_dir;
  common.hosts = options.hosts;
  LogLikelihood scoring;
  scoring.text = text;
  scoring.quiet = options.quiet;
  Result<Scored> scored = score_text(common, scoring);
  if (!scored.ok()) return scored.status();
  scored->model.reset();
  *out = std::move(*scored);
  return {};
}

// Before an importance matrix is known, a type is ruled out only if its error exceeds the limit by
// this factor.
constexpr double kUnweighed = 1.25;

// Checks --target-size before the slow steps: reading a text and measuring tensors.
Status check_target(const ConvertOptions& options, convert::Options wanted,
                    std::optional<convert::Packing> qsf) {
  const Result<native::ModelHeader> model = native::read_header(options.in, options.source);
  if (!model.ok()) return model.status();
  wanted.held = model->held;
  const Result<convert::Source> source = convert::Source::create(model->header, model->sources);
  if (!source.ok()) return source.status();
  const bool reads = !options.calibrate.empty() || options.sensitivity != "off";
  if (!options.calibrate.empty()) {
    wanted.min_cosine = 1 - kUnweighed * (1 - wanted.min_cosine);
  }
  return convert::check_size(*source, wanted, qsf, reads);
}

Status convert_model(const ConvertOptions& options, convert::Report* report, Measured* measured) {
  const bool qsf = options.out.ends_with(".qsf");
  const Result<convert::Packing> packing =
      convert::find_packing(options.compress.empty() ? "none" : options.compress);
  if (!packing.ok()) return packing.status();
  if (!qsf && !options.compress.empty()) {
    return error(Code::kInvalidArgument, "--compress needs a QSF file: OUT must end in .qsf");
  }
  convert::Options wanted;
  if (!options.memory_budget.empty()) {
    const Result<uint64_t> budget = parse_size(options.memory_budget);
    if (!budget.ok()) return budget.status();
    wanted.memory_budget = *budget;
  }
  if (!options.target_size.empty()) {
    const Result<uint64_t> size = parse_size(options.target_size);
    if (!size.ok()) return size.status();
    if (*size == 0) return error(Code::kInvalidArgument, "--target-size must be greater than 0");
    wanted.target_bytes = *size;
  }
  wanted.min_cosine = options.min_cosine;
  wanted.type = options.type;
  wanted.pure = options.pure;
  wanted.cluster_head = options.cluster_head;
  wanted.cluster_embedding = options.cluster_embedding;
  wanted.threads = options.threads;
  for (const std::string& text : options.tensor_types) {
    const size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return error(Code::kInvalidArgument, "--tensor-type must be NAME=TYPE, such as attn_v=q6_k");
    }
    wanted.tensor_types.push_back({text.substr(0, equals), text.substr(equals + 1)});
  }
  if (!options.type.empty()) {
    const auto recipe = convert::find_recipe(options.type);
    if (!recipe.ok()) return recipe.status();
  } else if (options.pure) {
    return error(Code::kInvalidArgument, "--pure needs --type");
  } else if (options.target_size.empty() && options.tensor_types.empty() &&
             !options.imatrix.empty()) {
    return error(Code::kInvalidArgument, "--imatrix needs --type, --tensor-type or --target-size");
  }
  convert::Imatrix importance;
  if (!options.imatrix.empty()) {
    Result<convert::Imatrix> read = read_importance(options.imatrix, wanted.memory_budget);
    if (!read.ok()) return read.status();
    importance = std::move(*read);
    wanted.importance = &importance;
  }
  if (wanted.target_bytes > 0) {
    const auto as = qsf ? std::optional(*packing) : std::nullopt;
    SLUICE_RETURN_IF_ERROR(check_target(options, wanted, as));
  }
  Outputs outputs;
  SLUICE_RETURN_IF_ERROR(outputs.open(options));
  std::string text;  // read once: it may be standard input
  if (!options.perplexity.empty()) {
    Result<std::string> read = read_text(options.perplexity);
    if (!read.ok()) return read.status();
    text = std::move(*read);
  }
  SLUICE_RETURN_IF_ERROR(look_at_perplexity(options, options.in, text, wanted, &measured->before));
  if (!options.calibrate.empty()) {
    Calibration from;
    from.model = options.in;
    from.text_file = options.calibrate;
    from.source = options.source;
    from.memory_budget = wanted.memory_budget;
    from.threads = options.threads;
    const bool quantizes =
        !options.type.empty() || !options.target_size.empty() || !options.tensor_types.empty();
    from.moments = quantizes || !options.save_imatrix.empty();
    Progress progress("calibrating", Unit::kPercent, options.quiet);
    from.on_progress = [&progress](double share) { progress.update_share(share); };
    Result<Calibrated> read = calibrate(from);
    if (!read.ok()) return read.status();
    Calibrated& found = measured->calibrated;
    found = std::move(*read);
    if (quantizes) wanted.importance = &found.importance;
    if (!options.save_imatrix.empty()) {
      SLUICE_RETURN_IF_ERROR(write_importance(found.importance, options, *outputs.imatrix));
    }
    wanted.layers = importance_of(found.layers);
    wanted.exits = found.exits.weights;
  }
  SLUICE_RETURN_IF_ERROR(look_at_sensitivity(options, &wanted, measured));
  Result<native::ModelHeader> model = native::read_header(options.in, options.source);
  if (!model.ok()) return model.status();
  wanted.held = model->held;
  const Result<convert::Source> source = convert::Source::create(model->header, model->sources);
  if (!source.ok()) return source.status();
  FileSink sink(&*outputs.model, options.out);
  Progress progress("converting", Unit::kBytes, options.quiet);
  wanted.on_progress = [&](uint64_t done, uint64_t total) { progress.update(done, total); };
  Result<convert::Report> made = qsf ? convert::to_qsf(*source, wanted, *packing, &sink)
                                     : convert::to_gguf(*source, wanted, &sink);
  if (!made.ok()) return made.status();
  SLUICE_RETURN_IF_ERROR(outputs.model->finish());
  *report = std::move(*made);
  return look_at_perplexity(options, options.out, text, wanted, &measured->after);
}

}  // namespace

void add_convert(CLI::App& app, int* status) {
  auto options = std::make_shared<ConvertOptions>();
  CLI::App* sub =
      add_command(app, kConvert, "convert", "Write a model with other quantization types",
                  "sluice convert model-F16.gguf model-Q4_K_M.gguf --type q4_k_m");
  sub->add_option("IN", options->in, "GGUF or QSF file, Hugging Face directory, or URL of one")
      ->required();
  sub->add_option("OUT", options->out, "the file to write: QSF if its name ends in .qsf, else GGUF")
      ->required();
  CLI::Option* type = sub->add_option(
      "--type", options->type,
      "quantization type or mix, such as q8_0 or q4_k_m (default: keep the types of IN)");
  CLI::Option* target = sub->add_option("--target-size", options->target_size,
                                        "maximum size of the file, such as 2G; chooses each "
                                        "tensor's type by its error (default: "
                                        "none)")
                            ->excludes(type);
  sub->add_option("--tensor-type", options->tensor_types,
                  "NAME=TYPE: type of all matrices whose names contain NAME, such as attn_v=q6_k; "
                  "may be repeated, the last match counts (default: none)")
      ->allow_extra_args(false)
      ->excludes(target);
  sub->add_option("--sensitivity", options->sensitivity,
                  "for --target-size, measure how each tensor's error changes the output, on the "
                  "text of --calibrate or on text that the model generates: auto (default), "
                  "measured (fail if not possible) or off")
      ->check(one_of({"auto", "measured", "off"}));
  sub->add_option("--min-cosine", options->min_cosine,
                  "minimum cosine between a tensor and its quantized values under --target-size, 0 "
                  "to 1 (default: 0.99)")
      ->check(number(0, 1));
  sub->add_flag("--pure", options->pure,
                "use --type for every matrix, without a mix (default: off)");
  CLI::Option* imatrix =
      sub->add_option("--imatrix", options->imatrix,
                      "importance matrix of llama.cpp (.gguf or .dat) (default: none)");
  CLI::Option* calibrate =
      sub->add_option(
             "--calibrate", options->calibrate,
             "text file; quantization minimizes the error on its activations, and the file stores "
             "layer importance for --skip-layers-ratio and --early-exit (default: none)")
          ->excludes(imatrix);
  sub->add_option(
         "--save-imatrix", options->save_imatrix,
         "file for the importance matrix of --calibrate, for --imatrix and llama-quantize (.gguf) "
         "(default: none)")
      ->needs(calibrate);
  sub->add_flag("--cluster-head", options->cluster_head,
                "cluster the output head's rows, for --head-clusters (default: off)");
  sub->add_option("--cluster-embedding", options->cluster_embedding,
                  "QSF: store each embedding row as one of up to 256 cluster centres and a "
                  "remainder of this type (default: off)");
  sub->add_option("--compress", options->compress,
                  "QSF: compression of the layers: none (default), lz4, lz4hc, zstd or auto (zstd "
                  "for layers that are mostly bf16, else none)");
  sub->add_option("--perplexity", options->perplexity,
                  "text file, or - for standard input; report the model's perplexity on it before "
                  "and after (default: none)");
  sub->add_option("--memory-budget", options->memory_budget,
                  "maximum bytes that the conversion may hold (default: 512M)");
  sub->add_option("--threads", options->threads, "threads, at most 64; 0: chosen (default)")
      ->check(whole_number(0, options::kMaxThreads));
  add_cache_dir(*sub, options->cache_dir);
  add_hosts(*sub, options->hosts);
  sub->add_flag("--force", options->force,
                "overwrite OUT and the file of --save-imatrix if they exist (default: off)");
  sub->add_flag("--json", options->json, "print the report as JSON (default: off)");
  add_quiet(*sub, options->quiet);
  sub->callback([options, status] {
    const EndsAtSignals watch;
    convert::Report report;
    Measured measured;
    Result<io::OpenOptions> source =
        source_options(options->cache_dir, options->hosts, options->in);
    Status done = source.status();
    if (source.ok()) {
      options->source = std::move(*source);
      Result<std::string> in = native::model_source(options->in, options->source);
      if (in.ok()) options->in = std::move(*in);
      done = in.ok() ? convert_model(*options, &report, &measured) : in.status();
    }
    if (!done.ok()) {
      *status = fail(done);
    } else if (options->json) {
      print_report_json(report, measured);
    } else {
      print_report(report, measured);
    }
  });
}

}  // namespace sluice::cli
