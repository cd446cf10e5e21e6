// Windows of the text go through the model as a prompt does, every position's logits wanted, so
// that the last layer and the head see all of them too.
#include "cli/calibrate.h"

#include <algorithm>
#include <map>

#include "cli/cli.h"

namespace sluice::cli {
namespace {

constexpr int32_t kWindow = 512;                // tokens
constexpr uint64_t kLogitsBytes = 32ull << 20;  // held at a time

class Moments {
 public:
  explicit Moments(const gguf::Header& header) : header_(header) {}

  static void see(void* context, const model::Mat& mat, const float* x, int64_t ld, int32_t n) {
    static_cast<Moments*>(context)->add(mat, x, ld, n);
  }

  [[nodiscard]] Result<convert::Importance> importance() const {
    convert::Importance out;
    for (const auto& [name, sums] : by_name_) {
      std::vector<float> moments(sums.squares.size());
      const size_t columns = moments.size() / sums.rows.size();
      for (size_t i = 0; i < moments.size(); ++i) {
        const double rows = sums.rows[i / columns];  // 0: an expert that was never asked
        moments[i] = rows > 0 ? static_cast<float>(sums.squares[i] / rows) : 1;
      }
      SLUICE_RETURN_IF_ERROR(out.set(std::string(name), std::move(moments)));
    }
    return out;
  }

 private:
  struct Sums {
    std::vector<double> squares;  // [matrices][columns]
    std::vector<double> rows;     // [matrices]
  };

  void add(const model::Mat& mat, const float* x, int64_t ld, int32_t n) {
    const gguf::Tensor* t = header_.find_tensor(mat.name);
    if (t == nullptr || static_cast<uint64_t>(mat.cols) != t->ne[0]) return;
    Sums& sums = by_name_[t->name];
    const auto cols = static_cast<size_t>(mat.cols);
    sums.squares.resize(cols * t->ne[2]);
    sums.rows.resize(t->ne[2]);
    const uint64_t which = (mat.offset - t->offset) / (t->bytes / t->ne[2]);
    if (mat.offset < t->offset || which >= t->ne[2]) return;
    double* to = sums.squares.data() + which * cols;
    for (int32_t row = 0; row < n; ++row) {
      for (size_t c = 0; c < cols; ++c) {
        const double v = x[row * ld + static_cast<int64_t>(c)];
        to[c] += v * v;
      }
    }
    sums.rows[which] += n;
  }

  const gguf::Header& header_;
  std::map<std::string_view, Sums> by_name_;
};

// The context to calibrate with: a window, or what the model was made for.
int32_t window_of(const gguf::Header& header) {
  const std::string arch(header.get_string("general.architecture").value_or(""));
  const uint64_t most = header.get_u64(arch + ".context_length").value_or(kWindow);
  return static_cast<int32_t>(std::clamp<uint64_t>(most, 2, kWindow));
}

// Rows of logits that are held at a time: the vocabulary's size is the embedding's rows.
int32_t rows_of(const gguf::Header& header) {
  const gguf::Tensor* table = header.find_tensor("token_embd.weight");
  const uint64_t vocabulary = table != nullptr ? table->ne[1] : 1;
  return static_cast<int32_t>(std::clamp<uint64_t>(kLogitsBytes / (4 * vocabulary), 1, 128));
}

Status read_windows(native::Model& model, session::Session& session,
                    std::span<const session::Token> tokens) {
  const tokenizer::Tokenizer& vocabulary = model.engine().tokenizer();
  const session::MemoryPlan& plan = model.engine().plan();
  const size_t opening = vocabulary.adds_bos() && vocabulary.bos() >= 0 ? 1 : 0;
  const size_t room = static_cast<size_t>(plan.n_ctx) - opening;
  const auto step = static_cast<size_t>(std::min(plan.logits_rows, plan.n_batch));
  std::vector<session::Token> window;
  for (size_t start = 0; start < tokens.size(); start += room) {
    const std::span<const session::Token> part =
        tokens.subspan(start, std::min(room, tokens.size() - start));
    window.assign(opening, vocabulary.bos());
    window.insert(window.end(), part.begin(), part.end());
    session.clear();
    for (size_t at = 0; at < window.size(); at += step) {
      const std::span<const session::Token> batch(window.data() + at,
                                                  std::min(step, window.size() - at));
      SLUICE_RETURN_IF_ERROR(session.begin(batch, session::Wanted::kAllLogits));
      SLUICE_RETURN_IF_ERROR(model.run(session));
    }
  }
  return {};
}

}  // namespace

Result<native::LoadOptions> calibration_options(const Calibration& calibration) {
  native::LoadOptions load;
  load.engine.memory_budget = calibration.memory_budget;
  load.engine.n_threads = calibration.threads;
  load.source.cache_dir = calibration.cache_dir;
  const Result<native::ModelHeader> described = native::read_header(calibration.model, load.source);
  if (!described.ok()) return described.status();
  load.engine.n_ctx = window_of(described->header);
  load.engine.logits_rows = load.engine.n_batch = rows_of(described->header);
  return load;
}

Result<convert::Importance> measure_importance(const Calibration& calibration) {
  Result<std::string> text = read_text(calibration.text_file);
  if (!text.ok()) return text.status();
  const Result<native::LoadOptions> load = calibration_options(calibration);
  if (!load.ok()) return load.status();
  Result<native::ModelHeader> described = native::read_header(calibration.model, load->source);
  if (!described.ok()) return described.status();
  Result<std::unique_ptr<native::Model>> model = native::Model::open(calibration.model, *load);
  if (!model.ok()) return model.status();
  const std::vector<session::Token> tokens =
      (*model)->engine().tokenizer().encode(*text, {false, false});
  if (tokens.empty()) return error(Code::kPromptEmpty, "the text to calibrate with has no tokens");
  Result<std::unique_ptr<session::Session>> session = session::Session::create((*model)->engine());
  if (!session.ok()) return session.status();
  Moments moments(described->header);
  (*session)->watch_products({Moments::see, &moments});
  SLUICE_RETURN_IF_ERROR(read_windows(**model, **session, tokens));
  return moments.importance();
}

}  // namespace sluice::cli
