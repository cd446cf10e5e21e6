#include "openai/llama_completion.h"

#include <algorithm>
#include <cmath>

#include "openai/body.h"
#include "tokenizer/utf8.h"

namespace sluice::openai {
namespace {

constexpr size_t kMaxInfillFiles = 256;

// Fields that choose how llama-server works, or what the response omits.
constexpr std::initializer_list<const char*> kServerFields = {
    "id_slot",         "n_keep",       "n_indent",           "t_max_prompt_ms",
    "samplers",        "min_keep",     "t_max_predict_ms",   "return_progress",
    "response_fields", "dry_base",     "dry_allowed_length", "dry_sequence_breakers",
    "mirostat_tau",    "mirostat_eta", "dry_penalty_last_n", "dynatemp_exponent",
    "xtc_threshold"};
// Samplers that this engine lacks, with the values that switch them off.
constexpr std::pair<const char*, double> kOtherSamplers[] = {
    {"dynatemp_range", 0}, {"xtc_probability", 0}, {"dry_multiplier", 0},
    {"mirostat", 0},       {"typical_p", 1},       {"top_n_sigma", -1}};

// Checks the fields that only llama-server has, and then the others as those of a completion, with
// `further` members and without `taken` ones.
Problem read_rest(Body& fields, std::vector<std::string_view> taken, std::string_view further,
                  GenerateRequest* out) {
  fields.read("return_tokens", &out->return_tokens);
  for (const auto& [key, off] : kOtherSamplers) fields.refuse(key, off);
  if (!fields.ok()) return fields.first_problem();
  taken.push_back("return_tokens");
  taken.insert(taken.end(), kServerFields.begin(), kServerFields.end());
  for (const auto& [key, off] : kOtherSamplers) taken.push_back(key);
  const std::string shared = R"("n_predict":-1)" + std::string(further);
  return read_completion(fields.without(taken, shared), out);
}

// Reads a list of {"filename", "text"}.
void read_files(Body& fields, std::vector<Infill::File>* out) {
  const Json* files = fields.take("input_extra");
  if (files == nullptr) return;
  const auto text = [](const Json& file, const char* key) -> const std::string* {
    const auto at = file.is_object() ? file.find(key) : file.end();
    return !file.is_object() || at == file.end() ? nullptr : at->get_ptr<const std::string*>();
  };
  bool right = files->is_array() && files->size() <= kMaxInfillFiles;
  for (size_t i = 0; right && i < files->size(); ++i) {
    const std::string* content = text((*files)[i], "text");
    const std::string* name = text((*files)[i], "filename");
    right = content != nullptr;
    if (right) out->push_back({name == nullptr ? "tmp" : *name, *content});
  }
  if (!right) {
    fields.fail("input_extra", "'input_extra' must be a list of at most " +
                                   std::to_string(kMaxInfillFiles) +
                                   " objects with a text and a filename.");
  }
}

Json finite_json(float logprob) {
  return std::max(static_cast<double>(logprob), -9999.0);  // JSON has no infinity
}

}  // namespace

Problem read_llama_completion(std::string_view body, GenerateRequest* out) {
  Body fields(body);
  if (!fields.ok()) return fields.first_problem();
  return read_rest(fields, {}, {}, out);
}

Problem read_infill(std::string_view body, GenerateRequest* out) {
  Body fields(body);
  if (!fields.ok()) return fields.first_problem();
  Infill& infill = out->infill.emplace();
  for (const char* key : {"input_prefix", "input_suffix"}) {
    if (fields.take(key) == nullptr) {
      fields.fail(key, "You must provide '" + std::string(key) + "'.");
    }
  }
  fields.read("input_prefix", &infill.prefix);
  fields.read("input_suffix", &infill.suffix);
  fields.read("prompt", &infill.prompt);
  read_files(fields, &infill.files);
  Problem problem =
      read_rest(fields, {"input_prefix", "input_suffix", "input_extra", "prompt", "suffix"},
                R"(,"prompt":"")", out);
  out->prompts.clear();
  return problem;
}

LlamaCompletion::LlamaCompletion(const GenerateRequest& request, TokenBytes token_bytes,
                                 std::string model, const chat::AnswerPlan*)
    : request_(request), token_bytes_(std::move(token_bytes)), model_(std::move(model)) {
  outputs_.resize(request.prompt_count() * static_cast<size_t>(request.n));
}

// The entry of one token in `completion_probabilities`.
Json LlamaCompletion::probability(const generate::Piece& piece) const {
  const bool after = request_.options.post_sampling_probs;
  const auto entry = [after](Token token, const std::string& bytes, float logprob) -> Json {
    std::string text;
    tokenizer::append_valid_utf8(bytes, tokenizer::Replace::kEachPart, &text);
    Json list = Json::array();
    for (const char byte : bytes) list.push_back(static_cast<unsigned char>(byte));
    Json out = {{"id", token}, {"token", text}, {"bytes", std::move(list)}};
    if (after) {
      out["prob"] = std::exp(static_cast<double>(logprob));
    } else {
      out["logprob"] = finite_json(logprob);
    }
    return out;
  };
  Json out = entry(piece.token, piece.bytes, piece.logprob);
  Json& top = out[after ? "top_probs" : "top_logprobs"] = Json::array();
  for (const sample::Candidate& each : piece.top) {
    top.push_back(entry(each.token, token_bytes_(each.token), each.logprob));
  }
  return out;
}

void LlamaCompletion::push(int32_t index, const generate::Piece& piece,
                           const generate::Counts& counts) {
  Output& output = outputs_[static_cast<size_t>(index)];
  const bool probable = request_.options.logprobs >= 0;
  output.new_line = output.new_line || piece.text.find('\n') != std::string::npos;
  if (!request_.stream) {
    output.content += piece.text;
    if (request_.return_tokens) output.tokens.push_back(piece.token);
    if (probable) output.probabilities.push_back(probability(piece));
    return;
  }
  Json frame = {{"index", index},
                {"content", piece.text},
                {"tokens", Json::array({piece.token})},
                {"stop", false},
                {"id_slot", -1},
                {"tokens_predicted", counts.generated},
                {"tokens_evaluated", counts.prompt}};
  if (request_.timings_per_token) frame["timings"] = timings_json(counts);
  if (probable) frame["completion_probabilities"] = Json::array({probability(piece)});
  frames_ += frame_of(frame);
}

void LlamaCompletion::end(int32_t index, generate::Finish finish, const generate::Counts& counts) {
  Output& output = outputs_[static_cast<size_t>(index)];
  const bool stopped = finish == generate::Finish::kStop;
  finish_ = stopped ? "stop" : "length";
  if (index % request_.n == 0) {  // the prompt counts once for all of its outputs
    usage_.prompt += counts.prompt;
    usage_.cached += counts.cached;
  }
  usage_.completion += counts.generated;
  output.document = {{"index", index},
                     {"content", output.content},
                     {"tokens", output.tokens},
                     {"id_slot", -1},
                     {"stop", true},
                     {"model", model_},
                     {"tokens_predicted", counts.generated},
                     {"tokens_evaluated", counts.prompt},
                     {"has_new_line", output.new_line},
                     {"truncated", false},
                     {"stop_type", !stopped               ? "limit"
                                   : stop_string_.empty() ? "eos"
                                                          : "word"},
                     {"stopping_word", stop_string_},
                     {"tokens_cached", counts.prompt + counts.generated},
                     {"timings", timings_json(counts)}};
  if (request_.stream) {
    frames_ += frame_of(output.document);
  } else if (!output.probabilities.empty()) {
    output.document["completion_probabilities"] = std::move(output.probabilities);
  }
}

std::string LlamaCompletion::document() const {
  if (outputs_.size() == 1) return to_text(outputs_[0].document);
  Json list = Json::array();
  for (const Output& output : outputs_) list.push_back(output.document);
  return to_text(list);
}

std::string LlamaCompletion::error_frames(const ApiError& error) {
  return "data: " + error_body(error) + "\n\n";
}

}  // namespace sluice::openai
