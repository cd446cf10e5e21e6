// What tests of vision encoders and of text models behind them read in
// fixtures/vision/manifest.json.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace sluice::test {

// Whether a case has sound, which is not supported.
inline bool has_sound(const nlohmann::json& entry) {
  return std::any_of(entry["media"].begin(), entry["media"].end(), [](const nlohmann::json& media) {
    return media.get<std::string>().ends_with(".wav");
  });
}

}  // namespace sluice::test
