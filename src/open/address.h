// Functions on model addresses, without I/O: whether an address names a directory, the addresses of
// files beside it, and the names of a split model's files. A query ("?download=true") is kept, but
// is not part of a name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::open {

// The address of a directory, and the query of its URL.
struct Place {
  std::string directory;  // "dir/" or "https://host/dir/"
  std::string query;

  [[nodiscard]] std::string file(std::string_view name) const;
  // The model's name: of the directory, or of a hub's repository ("ORG/NAME/resolve/main/").
  [[nodiscard]] std::string_view model_name() const;
};

// Whether the address names a directory ("dir/"), its config.json or a safetensors file in it.
[[nodiscard]] bool names_directory(std::string_view address);
// The directory that the address names, or that contains the file which it names.
[[nodiscard]] Place place_of(std::string_view address);
// The last part of a path or URL, without the query.
[[nodiscard]] std::string_view base_name(std::string_view address);

// The name of file `index` of a split model: "model-00001-of-00003.gguf" and index 1 give
// "model-00002-of-00003.gguf". The query is kept. Returns "" when `name` is not a file of a model
// that is split into `count` files.
[[nodiscard]] std::string split_name(std::string_view name, uint32_t index, uint32_t count);
// The name of the first file of a split model; "" when `name` is not a file of one.
[[nodiscard]] std::string first_part(std::string_view name);

}  // namespace sluice::open
