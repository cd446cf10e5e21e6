// chat-server.wasm: what servers have beyond chat.wasm. Requests that generate no text, infill, and
// pages about the server and its model. It renders no templates, since chat.wasm does.
#include <algorithm>
#include <ctime>

#include "anthropic/request.h"
#include "anthropic/responder.h"
#include "bindings/chat/exchange.h"
#include "endpoints/pages.h"
#include "jinja/json_text.h"
#include "jinja/numbers.h"
#include "openai/infill.h"
#include "openai/response.h"

namespace {

using namespace sluice;
using namespace sluice::bindings;

openai::InfillTokens infill_tokens(const Formats& formats) {
  openai::InfillTokens tokens;
  const auto is_token = [&formats](std::string_view text) {
    const auto& all = formats.controls;
    return std::any_of(all.begin(), all.end(),
                       [text](const chat::ControlToken& each) { return each.text == text; });
  };
  openai::find_infill_tokens(is_token, &tokens);
  return tokens;
}

}  // namespace

openai::Problem bindings::read_other(Exchange& of, std::string_view body) {
  openai::Problem problem;
  const std::string_view path = of.path;
  ObjectText work;
  if (path == "/v1/rerank") {
    problem = openai::read_rerank(body, &of.rerank);
    work.text("kind", "rerank")
        .text("query", of.rerank.query)
        .raw("documents", list_of(of.rerank.documents));
  } else if (path == "/apply-template") {
    problem = openai::read_apply_template(body, &of.request);
    work.text("kind", "render");
  } else if (path == endpoints::kCountTokens) {
    problem = anthropic::read_count(body, &of.request);
    work.text("kind", "count");
  } else if (path == "/tokenize") {
    openai::TokenizeRequest request;
    problem = openai::read_tokenize(body, &request);
    work.text("kind", "tokenize")
        .text("text", request.text)
        .flag("addSpecial", request.add_special)
        .flag("parseSpecial", request.parse_special)
        .flag("withPieces", request.with_pieces);
  } else if (path == "/detokenize") {
    std::vector<Token> tokens;
    problem = openai::read_detokenize(body, &tokens);
    work.text("kind", "detokenize").raw("tokens", list_of(tokens));
  } else {
    if (!endpoints::find_route(path)) problem = openai::unknown_path();
    work.text("kind", "page");
  }
  of.show(work);
  return problem;
}

openai::Problem bindings::infill_opening(const Exchange& of, const Formats& formats,
                                         std::string* out) {
  chat::Prompt prompt;
  openai::Problem problem =
      openai::infill_prompt(infill_tokens(formats), *of.request.infill, &prompt);
  *out = chat::marked_text(prompt);
  return problem;
}

std::string bindings::other_document(Exchange& of, const Bytes* texts, uint32_t n_texts,
                                     uint32_t width, double tokens) {
  const std::string_view path = of.path;
  if (path == "/tokenize") {
    const std::vector<Token> ids = values_of<Token>(texts[0]);
    size_t next = 1;
    const auto bytes = [&](Token) { return std::string(texts[next++].view()); };
    return openai::tokenize_body(ids, n_texts > 1 ? openai::TokenBytes(bytes) : nullptr);
  }
  if (path == endpoints::kCountTokens) {
    return anthropic::count_body(static_cast<size_t>(tokens));
  }
  if (path == "/detokenize") {
    return ObjectText().text("content", texts[0].view()).object();
  }
  if (path == "/apply-template") {
    return ObjectText().text("prompt", texts[0].view()).object();
  }
  of.prompt = static_cast<uint32_t>(tokens);
  const std::vector<float> scores = values_of<float>(texts[0]);
  return openai::rerank_body({scores, width, static_cast<int64_t>(tokens)}, of.rerank, of.model);
}

// Drops half of the files of an infill, for plan_exchange() to be called again.
SLUICE_EXPORT void drop_files(Exchange* of) {
  openai::drop_files(&*of->request.infill);
  of->files = static_cast<uint32_t>(of->request.infill->files.size());
}

// Shows the page at the exchange's path: {type, body}. texts: the request's body, and the model's
// info as JSON.
SLUICE_EXPORT void show_page(Exchange* of, const Formats* formats, const Bytes* texts) {
  static const int64_t created = std::time(nullptr);
  const std::string_view info = texts[1].view();
  ollama::ModelFacts model;
  const auto text = [info](const char* name) {
    return json_string(json_member(info, name).value_or(""));
  };
  const auto number = [info](const char* name) {
    return static_cast<int64_t>(
        jinja::read_double(json_member(info, name).value_or("0")).value_or(0));
  };
  const auto flag = [info](const char* name) { return json_member(info, name) == "true"; };
  model.name = of->model;
  model.created = created;
  model.architecture = text("architecture");
  model.quantization = text("quantization");
  model.chat_template = text("chatTemplate");
  model.parameters = static_cast<uint64_t>(number("parameters"));
  model.bytes = static_cast<uint64_t>(number("bytes"));
  model.parallel = number("parallel");
  model.n_ctx = number("contextLength");
  model.n_ctx_train = number("trainContextLength");
  model.n_layer = number("layers");
  model.n_embd = number("embeddingLength");
  model.n_vocab = number("vocabSize");
  model.n_head = number("attentionHeads");
  model.n_head_kv = number("kvHeads");
  model.completes = flag("generates");
  model.embeds = flag("embeds");
  model.sees = json_member(info, "modalities").value_or("").find("\"image\"") != info.npos;
  const std::string for_tools = text("toolTemplate");
  endpoints::find_abilities(infill_tokens(*formats).usable(),
                            for_tools.empty() ? model.chat_template : for_tools, &model);
  endpoints::Page page;
  if (const openai::Problem problem =
          endpoints::write_page(of->path, texts[0].view(), model, &page)) {
    return of->fail(*problem);
  }
  of->show(ObjectText().text("type", page.type).text("body", page.body));
}

// Methods and paths of all routes, a line each. An empty method is any.
SLUICE_EXPORT const char* routes() {
  static std::string lines;
  if (lines.empty()) {
    for (const endpoints::Route& each : endpoints::routes()) {
      lines += std::string(each.method) + ' ' + std::string(each.path) + '\n';
    }
    lines.pop_back();
  }
  return lines.c_str();
}
