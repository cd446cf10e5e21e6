// What addresses tell by themselves: whether they name a directory, what lies beside a file, and
// how the parts of a split model are called. A query ("?download=true") is kept, and is no part of
// a name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::open {

// A directory's address and what followed the path of a URL.
struct Place {
  std::string directory;  // "dir/" or "https://host/dir/"
  std::string query;

  [[nodiscard]] std::string file(std::string_view name) const;
  // The model's name: the directory's, or a hub's repository's ("ORG/NAME/resolve/main/").
  [[nodiscard]] std::string_view model_name() const;
};

// Does the address name a directory ("dir/"), its config.json or a safetensors file in it?
[[nodiscard]] bool names_directory(std::string_view address);
// The directory that the address names, or that the file which it names lies in.
[[nodiscard]] Place place_of(std::string_view address);
// The last part of a path or URL, without the query.
[[nodiscard]] std::string_view base_name(std::string_view address);

// "model-00001-of-00003.gguf" and index 1: "model-00002-of-00003.gguf", query kept; "" when `name`
// is not the name of a part of a model with `count` parts.
[[nodiscard]] std::string split_name(std::string_view name, uint32_t index, uint32_t count);
// The name of the first part, where `name` is that of any part; else "".
[[nodiscard]] std::string first_part(std::string_view name);

}  // namespace sluice::open
