// `sluice dump`: writes named intermediate tensors of one forward pass, one file each, for
// comparison with a reference. The index lists name, operation and shape (ne0 ne1 ne2 ne3; ne0 is
// contiguous).
#include "cli/dump.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/cli.h"
#include "cli/dump_projector.h"
#include "cli/dump_writer.h"

namespace sluice::cli {
namespace {

// The layer of "Qcur-3.ROPE" is 3; of "embd.GET_ROWS" it is -1.
int layer_of(const std::string& name) {
  const size_t dash = name.rfind('-');
  return dash == std::string::npos ? -1 : std::atoi(name.c_str() + dash + 1);
}

int dump(const DumpOptions& options, const ImageReading& reading) {
  const Result<Dumped> dumped =
      options.image.empty() ? write_dump(options) : write_projector_dump(options, reading);
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
  auto session = session::Session::create((*model)->engine().context());
  if (!session.ok()) return session.status();
  SLUICE_RETURN_IF_ERROR((*session)->begin(*tokens, session::Wanted::kAllLogits));
  Result<DumpWriter> writer = DumpWriter::create(options, (*model)->engine().program().hp.n_layer);
  if (!writer.ok()) return writer.status();
  (*session)->context().executor->observe([&writer](const char* name, int32_t ne0, int32_t ne1,
                                                    int32_t ne2, const float* data,
                                                    int64_t stride) {
    writer->write(name, layer_of(name), {ne0, ne1, ne2}, data, stride);
  });
  SLUICE_RETURN_IF_ERROR((*model)->run(**session));
  SLUICE_RETURN_IF_ERROR(writer->finish());
  return Dumped{n, writer->count(), (*model)->engine().table().name};
}

void add_dump(CLI::App& app, int* status) {
  auto options = std::make_shared<DumpOptions>();
  CLI::App* sub = add_command(app, kMeasure, "dump", "Write the tensors of one forward pass",
                              "sluice dump model.gguf --tokens 1,2,3 --out tensors");
  add_common(*sub, options->common);
  add_lora(*sub, options->common);
  CLI::Option* tokens = sub->add_option(
      "--tokens", options->tokens, "token ids, such as 1,2,3 (default: none, if there is --image)");
  CLI::Option* image =
      sub->add_option("--image", options->image,
                      "for a vision projector: picture to encode, a PNG, JPEG, WebP, BMP or GIF "
                      "file (default: none)")
          ->excludes(tokens);
  auto reading = std::make_shared<ImageReading>();
  reading->image_decode = "reference";  // compared with llama.cpp
  add_image_reading(*sub, *reading);
  sub->add_option("--out", options->out, "directory for the f32 files")->required();
  sub->add_option("--layer", options->layer, "layer number, or all (default: 0)");
  sub->callback([=] {
    if (tokens->empty() && image->empty()) {
      throw CLI::RequiredError("--tokens, or --image for a vision projector");
    }
    const EndsAtSignals watch;
    *status = dump(*options, *reading);
  });
}

}  // namespace sluice::cli
