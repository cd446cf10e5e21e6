// Each round reopens the models, so that every draft source starts without measured costs or
// acceptance rates, as a new process does. All sources generate the same tokens. Rates are medians,
// because disk speed and other load affect every run.
#include "cli/bench_speculative.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/generation_options.h"

namespace sluice::cli {
namespace {

struct ReplayPrompt {
  std::vector<session::Token> prompt, answer;
};

struct Rate {
  std::string draft;
  std::vector<double> rates;  // tokens per second
  generate::Counts counts;    // of the last round
};

Result<ReplayPrompt> read_prompts(const BenchDrafts& options) {
  ReplayPrompt replay;
  if (options.replay.empty()) {
    for (int i = 0; i < std::max(options.prompt, 1); ++i) {
      replay.prompt.push_back((i * 7919 + 13) % 251);
    }
    return replay;
  }
  Result<std::string> text = read_text(options.replay);
  if (!text.ok()) return text.status();
  const auto json = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const auto ids = [&json](const char* name, std::vector<session::Token>* out) {
    if (!json.is_object() || !json.contains(name) || !json[name].is_array()) return false;
    for (const auto& id : json[name]) {
      if (!id.is_number_integer()) return false;
      out->push_back(id.get<session::Token>());
    }
    return true;
  };
  if (ids("prompt", &replay.prompt) && ids("answer", &replay.answer)) return replay;
  return error(Code::kInvalidArgument,
               "a replay file must be {\"prompt\": [ids], \"answer\": [ids]}: %.80s is not",
               options.replay.c_str());
}

Status measure(const BenchDrafts& options, const ReplayPrompt& replay, Rate* row) {
  Result<native::LoadOptions> load = load_options(options.common);
  if (!load.ok()) return load.status();
  load->source.no_page_cache = options.no_page_cache;
  const size_t answer =
      replay.answer.empty() ? static_cast<size_t>(options.generate) : replay.answer.size();
  if (load->engine.n_ctx == 0) {
    load->engine.n_ctx = static_cast<int32_t>(replay.prompt.size() + answer) + 1;
  }
  const DraftOptions drafting{.choice = row->draft};
  LoadedModels speakers;
  Result<native::DraftPair> opened = open_models(options.common.model, drafting, *load);
  if (!opened.ok()) return opened.status();
  speakers.models = std::move(*opened);
  const int64_t n_vocab = speakers.models.model->engine().program().hp.n_vocab;
  for (const std::vector<session::Token>& ids : {replay.prompt, replay.answer}) {
    const auto foreign = [n_vocab](session::Token id) { return id < 0 || id >= n_vocab; };
    if (std::any_of(ids.begin(), ids.end(), foreign)) {
      return error(Code::kInvalidArgument,
                   "the replay file has token ids outside the model's vocabulary");
    }
  }
  SLUICE_RETURN_IF_ERROR(speakers.models.model->preload());
  if (speakers.models.draft) SLUICE_RETURN_IF_ERROR(speakers.models.draft->preload());
  generate::Options generation;
  generation.sampling.temperature = 0;
  generation.max_tokens = static_cast<int64_t>(answer);
  generation.ignore_eos = true;
  generation.script = replay.answer;
  SLUICE_RETURN_IF_ERROR(open_sessions(speakers, drafting, &generation));
  auto begun = generate::Generation::begin(*speakers.session, replay.prompt, generation);
  if (!begun.ok()) return begun.status();
  SLUICE_RETURN_IF_ERROR(drive_answer(speakers.models, **begun,
                                      [](std::string_view, session::Token) { return true; }));
  row->counts = (*begun)->counts();
  row->rates.push_back(row->counts.tokens_per_second());
  return {};
}

double median(std::vector<double> rates) {
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

void print_rows(const std::vector<Rate>& rows, bool as_json) {
  nlohmann::json out = nlohmann::json::array();
  if (!as_json) {
    std::printf("tok/s  vs the first  tokens/pass  drafted  accepted  passes  draft\n");
  }
  for (const Rate& row : rows) {
    const generate::Counts& c = row.counts;
    const double rate = median(row.rates), ratio = rate / median(rows[0].rates);
    const double per_pass = static_cast<double>(c.generated - 1) / std::max(c.passes, 1);
    if (as_json) {
      out.push_back({{"draft", row.draft},
                     {"tokensPerSecond", rate},
                     {"ratio", ratio},
                     {"tokensPerPass", per_pass},
                     {"draftedTokens", c.drafted},
                     {"acceptedTokens", c.accepted},
                     {"forwardPasses", c.passes},
                     {"generatedTokens", c.generated}});
    } else {
      std::printf("%5.4g  %12.2f  %11.2f  %7d  %8d  %6d  %s\n", rate, ratio, per_pass, c.drafted,
                  c.accepted, c.passes, row.draft.c_str());
    }
  }
  if (as_json) print_json(out, 2);
}

}  // namespace

int bench_drafts(const BenchDrafts& options) {
  const Result<ReplayPrompt> replay = read_prompts(options);
  if (!replay.ok()) return fail(replay.status());
  std::vector<Rate> rows;
  for (const std::string& draft : options.drafts) rows.push_back({draft, {}, {}});
  for (int i = 0; i < options.repeat; ++i) {
    for (Rate& row : rows) {
      if (Status s = measure(options, *replay, &row); !s.ok()) return fail(s);
    }
  }
  print_rows(rows, options.json);
  return 0;
}

}  // namespace sluice::cli
