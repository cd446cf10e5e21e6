// Reference data: where it is, its contents, and opening a model on it. Fixtures of the whole
// project are beside the checkout (../shared/fixtures); some of them, and the project's own, are in
// tests/data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "native/model_file.h"

namespace sluice::test {

struct Reference {
  std::string name, path;
  std::vector<int32_t> prompt, greedy;  // of a decoder: ~source tokens, then the decoder's
  std::vector<float> logits;            // [rows()][n_vocab]
  int64_t n_vocab = 0;
  double min_gap = 0;      // the smallest lead of a greedy token
  double llama_nmse = -1;  // error of llama.cpp on the same file, if known
  bool causal = true;      // otherwise every position sees all, and nothing is generated

  [[nodiscard]] size_t source() const { return static_cast<size_t>(session::source_of(prompt)); }
  [[nodiscard]] size_t rows() const { return prompt.size() - source(); }
};

// "../shared/fixtures/<folder>", else tests/data/<folder>, else "".
std::string fixture_folder(const std::string& folder);
std::string shared_folder(const std::string& folder);  // "" when ../shared is absent
// A file of fixture_folder(), or "" if ../shared is absent and tests/data has no such file. A file
// missing from ../shared is a failure.
std::string fixture_path(const std::string& folder, const std::string& file);
std::string own_folder(const std::string& folder);  // tests/data/<folder>
// Reads manifest.json of such a folder and its logits. `only` selects models, which must all exist
// if the folder is in ../shared.
std::vector<Reference> read_manifest(const std::string& folder,
                                     const std::vector<std::string>* only = nullptr);
// The models of ../shared/fixtures/families that the engine supports; grows with every family.
std::vector<std::string> further_families();
std::vector<float> read_floats(const std::string& path);
std::string sample_model();  // the sample model's path

struct Opened {
  std::unique_ptr<native::Model> model;
  std::unique_ptr<session::Session> session;  // destroyed before the model
  Opened() = default;
  Opened(Opened&&) = default;
  Opened& operator=(Opened&& other) noexcept {
    session.reset();
    model = std::move(other.model);
    session = std::move(other.session);
    return *this;
  }
};
// Fails the test and returns null pointers if the model cannot be opened.
Opened open_model(const std::string& path, const session::EngineOptions& options);
Opened open_model(const std::string& path, const native::LoadOptions& load);
// The smallest budget that these options work with.
uint64_t smallest_budget(const std::string& path, session::EngineOptions options);

// Logits of every position, [tokens][n_vocab], in passes of at most `step` tokens; for encoders
// `step` is the number of rows read at once.
std::vector<float> all_logits(Opened& opened, const std::vector<int32_t>& tokens, size_t step);
// Logits of the last of these tokens; the session computes only new ones.
std::vector<float> logits_after(Opened& opened, const std::vector<int32_t>& tokens);
// Greedy continuation of the prompt; `lead` gets the lead of each token.
std::vector<int32_t> greedy(Opened& opened, const std::vector<int32_t>& prompt, size_t n,
                            std::vector<float>* lead = nullptr);

// Names of the kernels that this machine can run.
std::vector<const char*> available_kernels();

// |a - b|^2 / |b|^2.
double nmse(const float* a, const float* b, size_t n);

}  // namespace sluice::test
