// `sluice dump`: writes named intermediate tensors of one forward pass, one file each, for
// comparison with a reference. The index lists name, operation and shape (ne0 ne1 ne2 ne3; ne0 is
// contiguous).
#include "cli/dump.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/atomic_file.h"
#include "cli/cli.h"
#include "platform/utf8_path.h"

namespace sluice::cli {
namespace {

// The layer of "Qcur-3.ROPE" is 3; of "embd.GET_ROWS" it is -1.
int layer_of(const std::string& name) {
  const size_t dash = name.rfind('-');
  return dash == std::string::npos ? -1 : std::atoi(name.c_str() + dash + 1);
}

// Writes one file per tensor, each atomically; the index comes last.
class DumpWriter {
 public:
  DumpWriter(const DumpOptions& options, int layer) : options_(options), layer_(layer) {}

  // Writes in the reference's order: tokens outermost, except that heads are outermost for scores.
  void write(const std::string& name, int32_t ne0, int32_t ne1, int32_t ne2, const float* data,
             int64_t stride) {
    const int layer = layer_of(name);
    if ((layer >= 0 && layer_ >= 0 && layer != layer_) || !status_.ok()) return;
    Result<AtomicFile> file = create(name + ".f32");
    if (!file.ok()) return;
    const size_t row = static_cast<size_t>(ne0) * static_cast<size_t>(ne1) * sizeof(float);
    for (int32_t t = 0; t < ne2; ++t) file->write(data + t * stride, row);
    status_ = file->finish();
    const std::string op = name.substr(name.rfind('.') + 1);
    index_ += name + '\t' + op + '\t' + std::to_string(ne0) + ' ';
    index_ += ne1 == 1 ? std::to_string(ne2) + " 1 1\n"
                       : std::to_string(ne1) + ' ' + std::to_string(ne2) + " 1\n";
    ++count_;
  }
  [[nodiscard]] Status finish() {
    if (!status_.ok()) return status_;
    Result<AtomicFile> file = create("index.txt");
    if (!file.ok()) return status_;
    file->write(index_.data(), index_.size());
    return file->finish();
  }
  [[nodiscard]] int count() const { return count_; }

 private:
  Result<AtomicFile> create(const std::string& name) {
    Result<AtomicFile> file = AtomicFile::create(
        platform::to_utf8(platform::to_path(options_.out) / name), options_.common.model);
    if (!file.ok()) status_ = file.status();
    return file;
  }
  const DumpOptions& options_;
  int layer_;
  std::string index_;
  Status status_;
  int count_ = 0;
};

// -1: all layers.
Result<int> parse_layer(const std::string& text, int64_t n_layer) {
  if (text == "all") return -1;
  int layer = -1;
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), layer);
  const bool whole = bad == std::errc() && end == text.data() + text.size();
  if (whole && layer >= 0 && layer < n_layer) return layer;
  return error(Code::kInvalidArgument, "the layer \"%.32s\" must be 0 to %lld, or \"all\"",
               text.c_str(), static_cast<long long>(n_layer - 1));
}

int dump(const DumpOptions& options) {
  const Result<Dumped> dumped = write_dump(options);
  if (!dumped.ok()) return fail(dumped.status());
  print_json({{"tokens", dumped->tokens},
              {"tensors", dumped->tensors},
              {"kernels", dumped->kernels},
              {"out", options.out}});
  return 0;
}

}  // namespace

Result<Dumped> write_dump(const DumpOptions& options) {
  Result<std::vector<session::Token>> tokens = parse_tokens(options.tokens);
  if (!tokens.ok()) return tokens.status();
  Result<native::LoadOptions> load = load_options(options.common);
  if (!load.ok()) return load.status();
  const int32_t n = static_cast<int32_t>(tokens->size());
  if (load->engine.n_ctx == 0) load->engine.n_ctx = n;
  load->engine.n_batch = load->engine.logits_rows = n;
  Result<std::unique_ptr<native::Model>> model = native::Model::open(options.common.model, *load);
  if (!model.ok()) return model.status();
  const Result<int> layer = parse_layer(options.layer, (*model)->engine().program().hp.n_layer);
  if (!layer.ok()) return layer.status();
  auto session = session::Session::create((*model)->engine().context());
  if (!session.ok()) return session.status();
  SLUICE_RETURN_IF_ERROR((*session)->begin(*tokens, session::Wanted::kAllLogits));
  std::error_code problem;
  std::filesystem::create_directories(platform::to_path(options.out), problem);
  if (problem) {
    return error(Code::kIo, "cannot create the directory \"%.256s\": %s", options.out.c_str(),
                 problem.message().c_str());
  }
  DumpWriter writer(options, *layer);
  (*session)->context().executor->observe(
      [&writer](const char* name, int32_t ne0, int32_t ne1, int32_t ne2, const float* data,
                int64_t stride) { writer.write(name, ne0, ne1, ne2, data, stride); });
  SLUICE_RETURN_IF_ERROR((*model)->run(**session));
  SLUICE_RETURN_IF_ERROR(writer.finish());
  return Dumped{n, writer.count(), (*model)->engine().table().name};
}

void add_dump(CLI::App& app, int* status) {
  auto options = std::make_shared<DumpOptions>();
  CLI::App* sub = add_command(app, kMeasure, "dump", "Write the tensors of one forward pass",
                              "sluice dump model.gguf --tokens 1,2,3 --out tensors");
  add_common(*sub, options->common);
  add_lora(*sub, options->common);
  sub->add_option("--tokens", options->tokens, "token ids, such as 1,2,3")->required();
  sub->add_option("--out", options->out, "directory for the f32 files")->required();
  sub->add_option("--layer", options->layer, "layer number, or all (default: 0)");
  sub->callback([options, status] {
    const EndsAtSignals watch;
    *status = dump(*options);
  });
}

}  // namespace sluice::cli
