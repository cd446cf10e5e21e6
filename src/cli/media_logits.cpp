// Pictures are encoded first. The projector is closed before the model opens, so that the two share
// the budget, of which the rows of the pictures are part.
#include "cli/media_logits.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/atomic_file.h"
#include "multimodal/pictures.h"

namespace sluice::cli {
namespace {

struct Encoded {
  std::vector<float> rows;                  // of all pictures, in order
  std::vector<session::MediaInput> inputs;  // by chunk; without rows for text
};

Status encode(MediaPrompt* prompt, native::LoadOptions* load, Encoded* out) {
  std::vector<size_t> begins;
  const uint64_t projector = multimodal::hash_of(prompt->projector_file.header);
  const Status status = encode_pictures(
      prompt, *load,
      [&](const media::Chunk& chunk, const media::Image& image, const std::vector<float>& rows) {
        const session::MediaInput input =
            multimodal::input_of(chunk, multimodal::hash_of(image, projector));
        begins.push_back(out->rows.size());
        out->rows.insert(out->rows.end(), rows.begin(), rows.end());
        out->inputs.push_back(input);
        if (input.non_causal) {
          load->engine.min_batch = std::max(load->engine.min_batch, input.n_tokens);
        }
        return Status();
      });
  begins.push_back(out->rows.size());
  for (size_t i = 0; i < out->inputs.size(); ++i) {
    out->inputs[i].rows = std::span(out->rows).subspan(begins[i], begins[i + 1] - begins[i]);
  }
  load->engine.base_bytes += out->rows.size() * sizeof(float);
  return status;
}

// The tokens of the text behind the last picture.
std::vector<session::Token> last_text(const MediaPrompt& prompt) {
  if (prompt.chunks.empty() || prompt.chunks.back().is_image) return {};
  return prompt.chunks.back().tokens;
}

Status compute(const MediaPrompt& prompt, const Encoded& encoded, native::Model& model,
               session::Session& session, AtomicFile& file) {
  size_t picture = 0;
  const auto run = [&](Status began) { return began.ok() ? model.run(session) : began; };
  for (size_t i = 0; i + 1 < prompt.chunks.size(); ++i) {
    const media::Chunk& chunk = prompt.chunks[i];
    SLUICE_RETURN_IF_ERROR(run(chunk.is_image ? session.begin_media(encoded.inputs[picture++])
                                              : session.begin(chunk.tokens)));
  }
  const std::vector<session::Token> tokens = last_text(prompt);
  const session::MemoryPlan& plan = model.engine().plan();
  const auto step = static_cast<size_t>(std::min(plan.batch.logits_rows, plan.batch.n_batch));
  for (size_t at = 0; at < tokens.size(); at += step) {
    const size_t n = std::min(step, tokens.size() - at);
    SLUICE_RETURN_IF_ERROR(
        run(session.begin({tokens.data() + at, n}, session::Wanted::kAllLogits)));
    for (size_t row = 0; row < n; ++row) {
      const std::span<const float> values = session.logits(static_cast<int32_t>(row));
      file.write(values.data(), values.size_bytes());
    }
  }
  return {};
}

}  // namespace

int media_logits(const Common& common, const MediaOptions& media, const std::string& out) {
  Result<native::LoadOptions> load = load_options(common);
  if (!load.ok()) return fail(load.status());
  Result<MediaPrompt> prompt = read_media_prompt(common, media);
  if (!prompt.ok()) return fail(prompt.status());
  if (last_text(*prompt).empty()) {
    return fail(error(Code::kPromptEmpty, "there is no text behind the last picture"));
  }
  Encoded encoded;
  if (const Status status = encode(&*prompt, &*load, &encoded); !status.ok()) return fail(status);
  uint64_t tokens = 0;
  for (const media::Chunk& chunk : prompt->chunks) {
    tokens += chunk.is_image ? chunk.n_tokens : chunk.tokens.size();
  }
  if (load->engine.n_ctx == 0) load->engine.n_ctx = static_cast<int32_t>(tokens);
  constexpr int32_t kRows = 64;  // of logits per forward pass
  load->engine.logits_rows = load->engine.memory_budget > 0 ? 1 : kRows;
  Result<std::unique_ptr<native::Model>> model = native::Model::open(common.model, *load);
  if (!model.ok()) return fail(model.status());
  auto session = session::Session::create((*model)->engine().context());
  if (!session.ok()) return fail(session.status());
  Result<AtomicFile> file = AtomicFile::create(out, common.model);
  if (!file.ok()) return fail(file.status());
  Status status = compute(*prompt, encoded, **model, **session, *file);
  if (status.ok()) status = file->finish();
  if (!status.ok()) return fail(status);
  print_json({{"tokens", last_text(*prompt).size()},
              {"vocabSize", (*model)->engine().program().hp.n_vocab},
              {"kernels", (*model)->engine().table().name},
              {"out", out}});
  return 0;
}

}  // namespace sluice::cli
