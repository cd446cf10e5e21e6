// Reads fixtures and runs models.
#include "fixtures_util.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../paths.h"

namespace sluice::test {

std::string shared_folder(const std::string& folder) {
  const std::string path = shared_dir() + "/fixtures/" + folder;
  return std::filesystem::exists(path) ? path : "";
}

std::string fixture_folder(const std::string& folder) {
  const std::string shared = shared_folder(folder);
  if (!shared.empty()) return shared;
  const std::string own = source_dir() + "/tests/data/" + folder;
  return std::filesystem::exists(own) ? own : "";
}

std::string fixture_path(const std::string& folder, const std::string& file) {
  const std::string path = fixture_folder(folder) + "/" + file;
  if (std::filesystem::exists(path)) return path;
  EXPECT_TRUE(shared_folder(folder).empty()) << path << " is missing";
  return "";
}

std::string sample_model() {
  return source_dir() + "/examples/models/sluice-tales-Q8_0.gguf";
}

std::vector<float> read_floats(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::vector<float> values(file ? static_cast<size_t>(file.tellg()) / sizeof(float) : 0);
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

std::string own_folder(const std::string& folder) {
  return source_dir() + "/tests/data/" + folder;
}

std::vector<std::string> further_families() {
  std::ifstream file(own_folder("further-families.json"));
  return nlohmann::json::parse(file).get<std::vector<std::string>>();
}

std::vector<Reference> read_manifest(const std::string& folder,
                                     const std::vector<std::string>* only) {
  std::vector<Reference> out;
  std::ifstream file(folder + "/manifest.json");
  if (!file) return out;
  for (const auto& entry : nlohmann::json::parse(file)) {
    Reference r;
    const std::string name = entry["name"];
    if (only != nullptr && std::find(only->begin(), only->end(), name) == only->end()) continue;
    r.name = name;
    r.path = folder + "/" + entry["file"].get<std::string>();
    r.prompt = entry["prompt"].get<std::vector<int32_t>>();
    if (entry.contains("decoder")) {
      for (int32_t& token : r.prompt) token = ~token;
      for (const int32_t token : entry["decoder"]) r.prompt.push_back(token);
    }
    r.causal = entry.value("causal", true);
    if (r.causal) {
      r.greedy = entry["greedy"].get<std::vector<int32_t>>();
      r.min_gap = entry["greedy_min_gap"];
    }
    r.n_vocab = entry["n_vocab"];
    if (entry.contains("llama_cpp_nmse")) r.llama_nmse = entry["llama_cpp_nmse"];
    r.logits = read_floats(folder + "/" + entry["logits"].get<std::string>());
    EXPECT_EQ(r.logits.size(), r.rows() * static_cast<size_t>(r.n_vocab)) << r.name;
    out.push_back(std::move(r));
  }
  if (only != nullptr && folder.starts_with(shared_dir())) {
    EXPECT_EQ(out.size(), only->size()) << folder << " lacks some of the models";
  }
  return out;
}

Opened open_model(const std::string& path, const session::EngineOptions& options) {
  native::LoadOptions load;
  load.engine = options;
  return open_model(path, load);
}

Opened open_model(const std::string& path, const native::LoadOptions& load) {
  Opened out;
  auto model = native::Model::open(path, load);
  EXPECT_TRUE(model.ok()) << path << ": " << model.status().message();
  if (!model.ok()) return out;
  out.model = std::move(*model);
  auto session = session::Session::create(out.model->engine().context());
  EXPECT_TRUE(session.ok()) << session.status().message();
  if (session.ok()) out.session = std::move(*session);
  return out;
}

uint64_t smallest_budget(const std::string& path, session::EngineOptions options) {
  options.memory_budget = 0;
  auto header = native::read_header(path, {});
  EXPECT_TRUE(header.ok()) << header.status().message();
  if (!header.ok()) return 0;
  options.base_bytes += header->held;
  auto found = session::inspect(header->header, options);
  EXPECT_TRUE(found.ok()) << found.status().message();
  return found.ok() ? found->plan.budget.minimum : 0;
}

std::vector<float> all_logits(Opened& opened, const std::vector<int32_t>& tokens, size_t step) {
  std::vector<float> out;
  const size_t source = static_cast<size_t>(session::source_of(tokens));
  for (size_t at = source; at < tokens.size(); at += step) {
    const size_t n = std::min(step, tokens.size() - at), before = at == source ? source : 0;
    Status status =
        opened.model->engine().program().hp.attention.causal
            ? opened.session->begin({tokens.data() + at - before, before + n},
                                    session::Wanted::kAllLogits)
            : opened.session->begin_rows(tokens, static_cast<int32_t>(at), static_cast<int32_t>(n));
    if (status.ok()) status = opened.model->run(*opened.session);
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok()) return {};
    for (size_t row = 0; row < n; ++row) {
      const auto values = opened.session->logits(static_cast<int32_t>(row));
      out.insert(out.end(), values.begin(), values.end());
    }
  }
  return out;
}

std::vector<float> logits_after(Opened& opened, const std::vector<int32_t>& tokens) {
  auto synced = opened.session->sync(tokens);
  EXPECT_TRUE(synced.ok()) << synced.status().message();
  const Status status = opened.model->run(*opened.session);
  EXPECT_TRUE(status.ok()) << status.message();
  const auto logits = opened.session->logits();
  return {logits.begin(), logits.end()};
}

std::vector<int32_t> greedy(Opened& opened, const std::vector<int32_t>& prompt, size_t n,
                            std::vector<float>* lead) {
  std::vector<int32_t> out;
  std::vector<int32_t> next = prompt;
  while (out.size() < n) {
    Status status = opened.session->begin(next);
    if (status.ok()) status = opened.model->run(*opened.session);
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok()) return out;
    const auto logits = opened.session->logits();
    const auto best = std::max_element(logits.begin(), logits.end());
    if (lead != nullptr) {
      float second = -INFINITY;
      for (auto it = logits.begin(); it != logits.end(); ++it) {
        if (it != best) second = std::max(second, *it);
      }
      lead->push_back(*best - second);
    }
    out.push_back(static_cast<int32_t>(best - logits.begin()));
    next = {out.back()};
  }
  return out;
}

std::vector<const char*> available_kernels() {
  std::vector<const char*> names;
  for (const char* const* name = kernels::available(); *name != nullptr; ++name) {
    names.push_back(*name);
  }
  return names;
}

double nmse(const float* a, const float* b, size_t n) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < n; ++i) {
    const double d = static_cast<double>(a[i]) - b[i];
    difference += d * d;
    size += static_cast<double>(b[i]) * b[i];
  }
  return difference / size;
}

}  // namespace sluice::test
