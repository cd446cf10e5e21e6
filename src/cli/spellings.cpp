// Rewrites llama.cpp's option spellings.
#include "cli/spellings.h"

namespace sluice::cli {
namespace {

// Other names of options, in pairs: llama.cpp's, ours.
constexpr const char* kRenamed[][2] = {
    {"-md", "--draft"},
    {"--model-draft", "--draft"},
    {"-np", "--parallel"},
    {"--grammar-file", "--grammar"},
};

std::string renamed(const std::string& name) {
  for (const auto& [theirs, ours] : kRenamed) {
    if (name == theirs) return ours;
  }
  return name;
}

}  // namespace

Result<std::vector<std::string>> translate_spellings(const std::vector<std::string>& arguments) {
  std::vector<std::string> out;
  std::string k, v;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    if (name == "--") {
      out.insert(out.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
      break;
    }
    if (name == "-ngl" || name == "--n-gpu-layers" || name == "--gpu-layers") {
      return error(Code::kInvalidArgument,
                   "%s: this program computes on the CPU. In the browser, the options device and "
                   "gpuLayers use a GPU. Omit it here, and set --memory-budget instead",
                   name.c_str());
    }
    std::string* const type = name == "-ctk" ? &k : name == "-ctv" ? &v : nullptr;
    const bool repository = name == "-hf" || name == "-hfr" || name == "--hf-repo";
    if (type == nullptr && !repository) {
      out.push_back(renamed(name));
      continue;
    }
    if (++i == arguments.size()) {
      return error(Code::kInvalidArgument, "%s needs a value", name.c_str());
    }
    if (repository) {
      out.insert(out.end(), {"--model", "hf:" + arguments[i]});
    } else {
      *type = arguments[i];
    }
  }
  if (k.empty() && v.empty()) return out;
  const std::string types = (k.empty() ? "f16" : k) + "," + (v.empty() ? "f16" : v);
  // after the subcommand's name, which comes first
  out.insert(out.begin() + (out.empty() ? 0 : 1), {"--kv-type", types});
  return out;
}

}  // namespace sluice::cli
