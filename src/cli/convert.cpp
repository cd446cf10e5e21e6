// `sluice convert`: writes a model as a GGUF or QSF file with other quantization types, and reports
// the error of each tensor. src/measure measures, src/convert converts.
#include "convert/convert.h"

#include <optional>

#include "cli/atomic_file.h"
#include "cli/convert_report.h"
#include "cli/options.h"
#include "cli/perplexity.h"
#include "cli/progress.h"
#include "native/hugging_face.h"

namespace sluice::cli {
namespace {

struct ConvertOptions {
  std::string in, out, type, imatrix, save_imatrix, calibrate, memory_budget, cache_dir,
      target_size, compress, cluster_embedding, perplexity;
  std::string sensitivity;
  std::vector<std::string> tensor_types;
  HostOptions hosts;
  io::OpenOptions source;  // made of cache_dir and hosts
  std::optional<double> min_cosine;
  int threads = 0;
  bool pure = false, json = false, cluster_head = false, force = false, quiet = false;
  bool mmproj = false, expert_records = false, gptq = false;
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

// Measures sensitivities for --target-size, unless --sensitivity is off. A model that cannot be
// measured is an error only with --sensitivity measured.
Status look_at_sensitivity(const ConvertOptions& options, const std::string& text,
                           convert::Options* wanted, Measured* measured) {
  const std::string& how = options.sensitivity;
  if (!how.empty() && options.target_size.empty()) {
    return error(Code::kInvalidArgument, "--sensitivity needs --target-size");
  }
  if (options.target_size.empty() || how == "off") return {};
  measure::SensitivityOptions from;
  from.model = options.in;
  from.source = options.source;
  from.text = options.calibrate.empty() ? nullptr : &text;
  from.memory_budget = wanted->memory_budget;
  from.threads = options.threads;
  from.importance = wanted->importance;
  from.qsf_types = wanted->qsf_types;
  if (wanted->hessians != nullptr) from.held = wanted->hessians->bytes();
  Progress progress("measuring tensors", Unit::kPercent, options.quiet);
  from.on_progress = [&progress](double share) { progress.update_share(share); };
  Result<measure::MeasuredSensitivity> read = measure::measure_sensitivity(from);
  if (read.ok()) {
    measured->sensitivity = std::move(*read);
    wanted->probes = measured->sensitivity.probes;
    return {};
  }
  if (how == "measured" || !measure::says_unmeasurable(read.status())) return read.status();
  measured->unmeasured = read.status().message();
  return {};
}

// Scores the text of --perplexity with `model`. Does nothing if the option was not given.
Status look_at_perplexity(const ConvertOptions& options, const std::string& model,
                          const std::string& text, const convert::Options& wanted,
                          std::optional<measure::Scored>* out) {
  if (options.perplexity.empty()) return {};
  Common common;
  common.model = model;
  common.memory_budget = std::to_string(wanted.memory_budget);
  common.threads = options.threads;
  common.cache_dir = options.cache_dir;
  common.hosts = options.hosts;
  measure::LogLikelihood scoring;
  scoring.text = text;
  Result<measure::Scored> scored = score(common, std::move(scoring), options.quiet);
  if (!scored.ok()) return scored.status();
  scored->model.reset();
  *out = std::move(*scored);
  return {};
}

// Before an importance matrix is known, a type is ruled out only if its error exceeds the limit by
// this factor.
constexpr double kUnweighed = 1.25;

// The header of what is converted.
Result<native::ModelHeader> read_input(const ConvertOptions& options) {
  if (!options.mmproj) return native::read_header(options.in, options.source);
  Result<native::ModelHeader> out = native::read_projector_header(options.in, options.source);
  if (!out.ok() || out->header.get_string("general.architecture") == std::string_view("clip")) {
    return out;
  }
  return error(Code::kInvalidArgument,
               "--mmproj: IN must be a Hugging Face directory of a model with a vision tower");
}

// Checks --target-size before the slow steps: reading a text and measuring tensors.
Status check_target(const ConvertOptions& options, convert::Options wanted,
                    std::optional<convert::Packing> qsf) {
  const Result<native::ModelHeader> model = read_input(options);
  if (!model.ok()) return model.status();
  wanted.held = model->held;
  const Result<convert::Source> source = convert::Source::create(model->header, model->sources);
  if (!source.ok()) return source.status();
  const bool reads = !options.calibrate.empty() || options.sensitivity != "off";
  if (!options.calibrate.empty()) {
    wanted.min_cosine = 1 - kUnweighed * (1 - wanted.cosine());
  }
  return convert::check_size(*source, wanted, qsf, reads);
}

// Checks --type, --pure, --imatrix and --tensor-type, which depend on each other.
Status read_types(const ConvertOptions& options, convert::Options* wanted) {
  wanted->type = options.type;
  wanted->pure = options.pure;
  for (const std::string& text : options.tensor_types) {
    const size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return error(Code::kInvalidArgument, "--tensor-type must be NAME=TYPE, such as attn_v=q6_k");
    }
    wanted->tensor_types.push_back({text.substr(0, equals), text.substr(equals + 1)});
  }
  if (options.min_cosine.has_value() && options.type.empty() && options.target_size.empty()) {
    return error(Code::kInvalidArgument, "--min-cosine needs --type or --target-size");
  }
  if (!options.type.empty()) return convert::find_recipe(options.type).status();
  if (options.pure) return error(Code::kInvalidArgument, "--pure needs --type");
  if (options.target_size.empty() && options.tensor_types.empty() && !options.imatrix.empty()) {
    return error(Code::kInvalidArgument, "--imatrix needs --type, --tensor-type or --target-size");
  }
  return {};
}

// The options of the conversion itself, without what is measured.
Status read_options(const ConvertOptions& options, convert::Options* wanted) {
  if (!options.memory_budget.empty()) {
    const Result<uint64_t> budget = parse_size(options.memory_budget);
    if (!budget.ok()) return budget.status();
    wanted->memory_budget = *budget;
  }
  if (!options.target_size.empty()) {
    const Result<uint64_t> size = parse_size(options.target_size);
    if (!size.ok()) return size.status();
    if (*size == 0) return error(Code::kInvalidArgument, "--target-size must be greater than 0");
    wanted->target_bytes = *size;
  }
  wanted->min_cosine = options.min_cosine;
  wanted->cluster_head = options.cluster_head;
  wanted->expert_records = options.expert_records;
  wanted->cluster_embedding = options.cluster_embedding;
  wanted->threads = options.threads;
  return read_types(options, wanted);
}

// Measures the model on the text of --calibrate, if the option was given.
Status look_at_calibration(const ConvertOptions& options, const std::string& text,
                           convert::Options* wanted, Outputs* outputs, Measured* measured) {
  if (options.calibrate.empty()) return {};
  measure::CalibrationOptions from;
  from.model = options.in;
  from.text = text;
  from.source = options.source;
  from.memory_budget = wanted->memory_budget;
  from.threads = options.threads;
  const bool quantizes =
      !options.type.empty() || !options.target_size.empty() || !options.tensor_types.empty();
  if (options.gptq && !quantizes) {
    return error(Code::kInvalidArgument, "--gptq needs --type, --tensor-type or --target-size");
  }
  from.moments = quantizes || !options.save_imatrix.empty();
  from.hessians = options.gptq;
  Progress progress("calibrating", Unit::kPercent, options.quiet);
  from.on_progress = [&progress](double share) { progress.update_share(share); };
  Result<measure::Calibration> read = measure::calibrate(from);
  if (!read.ok()) return read.status();
  measure::Calibration& found = measured->calibration;
  found = std::move(*read);
  if (quantizes) wanted->importance = &found.importance;
  if (options.gptq) wanted->hessians = &found.hessians;
  if (!options.save_imatrix.empty()) {
    SLUICE_RETURN_IF_ERROR(write_importance(found.importance, options, *outputs->imatrix));
  }
  wanted->layers = measure::importance_of(found.layers);
  wanted->exits = found.exits.weights;
  return {};
}

// Reads the text of an option; "" if it was not given.
Result<std::string> text_of(const std::string& path) {
  return path.empty() ? Result<std::string>(std::string()) : read_text(path);
}

Status convert_model(const ConvertOptions& options, convert::Report* report, Measured* measured) {
  const bool qsf = options.out.ends_with(".qsf");
  const Result<convert::Packing> packing =
      convert::find_packing(options.compress.empty() ? "none" : options.compress);
  if (!packing.ok()) return packing.status();
  if (!qsf && !options.compress.empty()) {
    return error(Code::kInvalidArgument, "--compress needs a QSF file: OUT must end in .qsf");
  }
  if (!qsf && options.expert_records) {
    return error(Code::kInvalidArgument, "--expert-records needs a QSF file: OUT must end in .qsf");
  }
  convert::Options wanted;
  SLUICE_RETURN_IF_ERROR(read_options(options, &wanted));
  wanted.qsf_types = qsf;
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
  // Each text is read once, because it may be standard input.
  const Result<std::string> scored = text_of(options.perplexity);
  if (!scored.ok()) return scored.status();
  const Result<std::string> text = text_of(options.calibrate);
  if (!text.ok()) return text.status();
  SLUICE_RETURN_IF_ERROR(
      look_at_perplexity(options, options.in, *scored, wanted, &measured->before));
  SLUICE_RETURN_IF_ERROR(look_at_calibration(options, *text, &wanted, &outputs, measured));
  SLUICE_RETURN_IF_ERROR(look_at_sensitivity(options, *text, &wanted, measured));
  Result<native::ModelHeader> model = read_input(options);
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
  return look_at_perplexity(options, options.out, *scored, wanted, &measured->after);
}

Status run_convert(ConvertOptions& options, convert::Report* report, Measured* measured) {
  Result<io::OpenOptions> source = source_options(options.cache_dir, options.hosts, options.in);
  if (!source.ok()) return source.status();
  options.source = std::move(*source);
  Result<std::string> in = native::model_source(options.in, options.source);
  if (!in.ok()) return in.status();
  options.in = std::move(*in);
  return convert_model(options, report, measured);
}

// The options that choose types.
void add_types(CLI::App& app, ConvertOptions& options) {
  CLI::Option* type =
      app.add_option("--type", options.type,
                     "quantization type or mix, such as q8_0, q4_k_m or, for QSF files, qsf3_m "
                     "(default: keep the types of IN)");
  CLI::Option* target = app.add_option("--target-size", options.target_size,
                                       "maximum size of the file, such as 2G; chooses each "
                                       "tensor's type by its error (default: "
                                       "none)")
                            ->excludes(type);
  app.add_option("--tensor-type", options.tensor_types,
                 "NAME=TYPE: type of all matrices whose names contain NAME, such as attn_v=q6_k; "
                 "may be repeated, the last match counts (default: none)")
      ->allow_extra_args(false)
      ->excludes(target);
  app.add_option("--sensitivity", options.sensitivity,
                 "for --target-size, measure how each tensor's error changes the output, on the "
                 "text of --calibrate or on text that the model generates: auto (default), "
                 "measured (fail if not possible) or off")
      ->check(one_of({"auto", "measured", "off"}));
  app.add_option("--min-cosine", options.min_cosine,
                 "minimum cosine between a tensor and its quantized values, 0 to 1; a tensor that "
                 "--type does not keep as close gets a larger type (default: none; 0.99 under "
                 "--target-size)")
      ->check(number(0, 1));
  app.add_flag("--pure", options.pure, "use --type for every matrix, without a mix (default: off)");
  CLI::Option* imatrix =
      app.add_option("--imatrix", options.imatrix,
                     "importance matrix of llama.cpp (.gguf or .dat) (default: none)");
  CLI::Option* calibrate =
      app.add_option(
             "--calibrate", options.calibrate,
             "text file; quantization minimizes the error on its activations, and the file stores "
             "layer importance for --skip-layers-ratio and --early-exit (default: none)")
          ->excludes(imatrix);
  app.add_flag("--gptq", options.gptq,
               "let later weights of a row compensate the rounding errors of earlier ones (GPTQ), "
               "by the correlations of activations on the text of --calibrate (default: off)")
      ->needs(calibrate);
  app.add_option(
         "--save-imatrix", options.save_imatrix,
         "file for the importance matrix of --calibrate, for --imatrix and llama-quantize (.gguf) "
         "(default: none)")
      ->needs(calibrate);
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
  add_types(*sub, *options);
  CLI::Option* mmproj = sub->add_flag(
      "--mmproj", options->mmproj,
      "write the vision projector of a Hugging Face directory, not the text model (default: off)");
  for (const char* measured : {"--target-size", "--calibrate"}) {
    mmproj->excludes(sub->get_option(measured));
  }
  sub->add_flag("--cluster-head", options->cluster_head,
                "cluster the output head's rows, for --head-clusters (default: off)");
  sub->add_option("--cluster-embedding", options->cluster_embedding,
                  "QSF: store each embedding row as one of up to 256 cluster centres and a "
                  "remainder of this type (default: off)");
  sub->add_option("--compress", options->compress,
                  "QSF: compression of the layers: none (default), lz4, lz4hc, zstd or auto (zstd "
                  "for layers that are mostly bf16, else none)");
  sub->add_flag("--expert-records", options->expert_records,
                "QSF: store each expert of a mixture in one place, with a checksum (default: off)");
  sub->add_option("--perplexity", options->perplexity,
                  "text file, or - for standard input; report the model's perplexity on it before "
                  "and after (default: none)");
  sub->add_option(options::find("memory_budget").cli, options->memory_budget,
                  "maximum bytes that the conversion may hold (default: 512M)");
  constexpr const options::Option& kThreads = options::find("threads");
  limit(sub->add_option(kThreads.cli, options->threads, "threads, at most 64; 0: chosen (default)"),
        kThreads);
  add_cache_dir(*sub, options->cache_dir);
  add_hosts(*sub, options->hosts);
  add_tokenizer(*sub, options->hosts);
  sub->add_flag("--force", options->force,
                "overwrite OUT and the file of --save-imatrix if they exist (default: off)");
  sub->add_flag("--json", options->json, "print the report as JSON (default: off)");
  add_quiet(*sub, options->quiet);
  sub->callback([options, status] {
    const EndsAtSignals watch;
    convert::Report report;
    Measured measured;
    const Status done = run_convert(*options, &report, &measured);
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
