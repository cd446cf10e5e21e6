// References to models on the Hugging Face hub, and which file of a repository one means. No I/O:
// hugging_face.h makes the requests. web/io/huggingface.ts has the same rules for the package, and
// tests/data/hub-files.json has examples for both.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace sluice::native {

// hf:OWNER/REPO[:TAG][@REVISION] or hf:OWNER/REPO/PATH[@REVISION]
struct HubReference {
  std::string repository;  // "OWNER/REPO"
  std::string tag;         // a quantization; empty: chosen
  std::string path;        // of a file or directory in the repository
  std::string revision = "main";

  [[nodiscard]] static bool is_one(std::string_view text) { return text.starts_with("hf:"); }
  // Errors: kInvalidArgument.
  [[nodiscard]] static Result<HubReference> parse(const std::string& text);
  // "https://hub/OWNER/REPO/resolve/REVISION/PATH"
  [[nodiscard]] std::string url(const std::string& hub, const std::string& file) const;
  // Of the hub's API: all files of the repository.
  [[nodiscard]] std::string list_url(const std::string& hub) const;
};

// A GGUF model of a repository: one file, or all parts of a split one under the first part's name.
struct HubModel {
  std::string path;
  uint64_t bytes = 0;
};

// The quantization in a file name, such as "Q4_K_M", in capital letters; "" if there is none.
[[nodiscard]] std::string quantization_of(std::string_view path);
// The language models among the files (path to bytes), the smallest first. Image projectors,
// importance matrices and the like are omitted.
[[nodiscard]] std::vector<HubModel> models_among(const std::map<std::string, uint64_t>& files);
// The model that is meant. With a tag: the first of that quantization, else with that word in its
// path. Without: the first of Q4_K_M, Q4_0, Q4_K_S, Q5_K_M, Q8_0 and IQ4_XS, else the smallest.
[[nodiscard]] std::optional<HubModel> choose(const std::vector<HubModel>& models,
                                             const std::string& tag);

// The projector for pictures among these file names, or nullopt: mmproj*.gguf, or NAME.mmproj*.gguf
// for a model whose name is NAME or begins with it. Without a model, any with mmproj in its name.
// Of several, the first of F16, BF16 and Q8_0, else the first by name.
[[nodiscard]] std::optional<std::string> choose_projector(const std::vector<std::string>& names,
                                                          std::string_view model);

}  // namespace sluice::native
