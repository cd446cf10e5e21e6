// `sluice dump`: named intermediate tensors of one pass, a file each, and an index of their shapes
// (name, operation, ne0 ne1 ne2 ne3; ne0 is contiguous), for comparison against a reference.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/cli.h"

namespace sluice::cli {
namespace {

struct DumpOptions {
  Common common;
  std::string tokens, out;
  std::string layer = "0";
};

// Layer of "Qcur-3.ROPE" is 3; of "embd.GET_ROWS" -1.
int layer_of(const std::string& name) {
  const size_t dash = name.rfind('-');
  return dash == std::string::npos ? -1 : std::atoi(name.c_str() + dash + 1);
}

class Writer {
 public:
  Writer(std::filesystem::path folder, int layer)
      : folder_(std::move(folder)), layer_(layer), index_(folder_ / "index.txt") {}

  // Written as the reference has it: tokens outermost but one for heads of scores.
  void write(const std::string& name, int32_t ne0, int32_t ne1, int32_t ne2, const float* data,
             int64_t stride) {
    const int layer = layer_of(name);
    if (layer >= 0 && layer_ >= 0 && layer != layer_) return;
    std::FILE* file = std::fopen((folder_ / (name + ".f32")).c_str(), "wb");
    if (file == nullptr) {
      ok_ = false;
      return;
    }
    const size_t row = static_cast<size_t>(ne0) * static_cast<size_t>(ne1);
    for (int32_t t = 0; t < ne2; ++t) {
      ok_ = std::fwrite(data + t * stride, sizeof(float), row, file) == row && ok_;
    }
    ok_ = std::fclose(file) == 0 && ok_;
    const std::string op = name.substr(name.rfind('.') + 1);
    index_ << name << '\t' << op << '\t' << ne0 << ' ';
    if (ne1 == 1) {
      index_ << ne2 << " 1 1\n";
    } else {
      index_ << ne1 << ' ' << ne2 << " 1\n";
    }
    ++count_;
  }
  [[nodiscard]] bool ok() const { return ok_ && index_.good(); }
  [[nodiscard]] int count() const { return count_; }

 private:
  std::filesystem::path folder_;
  int layer_;
  std::ofstream index_;
  bool ok_ = true;
  int count_ = 0;
};

int dump(const DumpOptions& options) {
  Result<std::vector<session::Token>> tokens = parse_tokens(options.tokens);
  if (!tokens.ok()) return fail(tokens.status());
  const int layer = options.layer == "all" ? -1 : std::atoi(options.layer.c_str());
  Result<native::LoadOptions> load = load_options(options.common);
  if (!load.ok()) return fail(load.status());
  const int32_t n = static_cast<int32_t>(tokens->size());
  if (load->engine.n_ctx == 0) load->engine.n_ctx = n;
  load->engine.n_batch = load->engine.logits_rows = n;
  Result<std::unique_ptr<native::Model>> model = native::Model::open(options.common.model, *load);
  if (!model.ok()) return fail(model.status());
  auto session = session::Session::create((*model)->engine());
  if (!session.ok()) return fail(session.status());
  std::error_code problem;
  std::filesystem::create_directories(options.out, problem);
  Writer writer(options.out, layer);
  if (!writer.ok()) {
    return fail(error(Code::kIo, "the folder \"%.256s\" cannot be written", options.out.c_str()));
  }
  (*session)->observe(
      [&writer](const char* name, int32_t ne0, int32_t ne1, int32_t ne2, const float* data,
                int64_t stride) { writer.write(name, ne0, ne1, ne2, data, stride); });
  Status status = (*session)->begin(*tokens, session::Wanted::kAllLogits);
  if (status.ok()) status = (*model)->run(**session);
  if (status.ok() && !writer.ok()) status = error(Code::kIo, "writing the tensors failed");
  if (!status.ok()) return fail(status);
  const nlohmann::json line = {{"tokens", n},
                               {"tensors", writer.count()},
                               {"kernels", (*model)->engine().table().name},
                               {"out", options.out}};
  std::printf("%s\n", line.dump().c_str());
  return 0;
}

}  // namespace

void add_dump(CLI::App& app, int* status) {
  auto options = std::make_shared<DumpOptions>();
  CLI::App* sub = app.add_subcommand("dump", "Write the named tensors of a pass, for comparison");
  add_common(*sub, options->common);
  sub->add_option("--tokens", options->tokens, "ids, such as 1,2,3")->required();
  sub->add_option("--out", options->out, "folder for the f32 files")->required();
  sub->add_option("--layer", options->layer, "a layer's number, or all");
  sub->callback([options, status] { *status = dump(*options); });
}

}  // namespace sluice::cli
