#include "openai/llama_completion.h"

#include <cmath>

#include "jinja/json_text.h"
#include "openai/body.h"

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

// Written as text, because trees of values are large code.
std::string member(std::string_view key, std::string_view value) {
  return ",\"" + std::string(key) + "\":" + std::string(value);
}

std::string listed(const std::vector<std::string>& items) {
  std::string out = "[";
  for (const std::string& item : items) out += (out.size() > 1 ? "," : "") + item;
  return out + ']';
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
std::string LlamaCompletion::probability(const generate::Piece& piece) const {
  const bool after = request_.options.post_sampling_probs;
  const auto entry = [after](Token token, const std::string& bytes, float logprob) {
    const double number = after ? std::exp(static_cast<double>(logprob)) : finite_logprob(logprob);
    return "{\"id\":" + std::to_string(token) + member("token", json_quote(valid_text(bytes))) +
           member("bytes", byte_list(bytes)) + member(after ? "prob" : "logprob", to_text(number));
  };
  std::vector<std::string> top;
  for (const sample::Candidate& each : piece.top) {
    top.push_back(entry(each.token, token_bytes_(each.token), each.logprob) + '}');
  }
  return entry(piece.token, piece.bytes, piece.logprob) +
         member(after ? "top_probs" : "top_logprobs", listed(top)) + '}';
}

// The members of both frames and documents, without the closing brace.
std::string LlamaCompletion::head(int32_t index, const Output& output, bool stop,
                                  const generate::Counts& counts) const {
  std::string out = "{\"index\":" + std::to_string(index);
  out += member("content", json_quote(output.content));
  out += member("tokens", listed(output.tokens));
  out += member("id_slot", "-1") + member("stop", stop ? "true" : "false");
  out += member("tokens_predicted", std::to_string(counts.generated));
  out += member("tokens_evaluated", std::to_string(counts.prompt));
  if (!output.probabilities.empty()) {
    out += member("completion_probabilities", listed(output.probabilities));
  }
  if (stop || request_.timings_per_token) out += member("timings", to_text(timings_json(counts)));
  return out;
}

void LlamaCompletion::push(int32_t index, const generate::Piece& piece,
                           const generate::Counts& counts) {
  Output& output = outputs_[static_cast<size_t>(index)];
  output.new_line = output.new_line || piece.text.find('\n') != std::string::npos;
  output.content += piece.text;
  if (request_.stream || request_.return_tokens) {
    output.tokens.push_back(std::to_string(piece.token));
  }
  if (request_.options.logprobs >= 0) output.probabilities.push_back(probability(piece));
  if (!request_.stream) return;
  frames_ += frame_of(head(index, output, /*stop=*/false, counts) + '}');
  output.content.clear();
  output.tokens.clear();
  output.probabilities.clear();
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
  const char* why = !stopped ? "\"limit\"" : stop_string_.empty() ? "\"eos\"" : "\"word\"";
  output.document =
      head(index, output, /*stop=*/true, counts) + member("model", json_quote(model_)) +
      member("has_new_line", output.new_line ? "true" : "false") + member("truncated", "false") +
      member("stop_type", why) + member("stopping_word", json_quote(stop_string_)) +
      member("tokens_cached", std::to_string(counts.prompt + counts.generated)) + '}';
  if (request_.stream) frames_ += frame_of(output.document);
}

std::string LlamaCompletion::document() const {
  if (outputs_.size() == 1) return outputs_[0].document;
  std::vector<std::string> list;
  for (const Output& output : outputs_) list.push_back(output.document);
  return listed(list);
}

std::string LlamaCompletion::error_frames(const ApiError& error) {
  return frame_of(error_body(error));
}

}  // namespace sluice::openai
