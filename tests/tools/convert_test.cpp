// `sluice convert` on whole models: every type gives a file that runs and agrees with the source
// within the type's precision; a checkpoint directory becomes a GGUF file with the same logits; a
// failed conversion leaves nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../extent.h"
#include "../paths.h"
#include "../sanitized.h"
#include "../unit/torch_file.h"
#include "gguf/gguf.h"
#include "hf/safetensors.h"
#include "program.h"
#include "program_util.h"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

const std::string kSource = sluice::test::source_dir();
const std::string kSample = kSource + "/examples/models/sluice-tales-F16.gguf";
constexpr const char* kTokens = "1,300,17,42,250,611,9,33,120,400,77,18,505,260,31,90";

class Convert : public ProgramTest {
 protected:
  [[nodiscard]] std::vector<float> logits(const std::string& model) const {
    const Ran ran = run({"logits", model, "--tokens", kTokens, "--out", at("logits")});
    EXPECT_EQ(ran.status, 0) << ran.err;
    return floats_of(at("logits"));
  }
};

// Ctrl-C while the file is written leaves neither the file nor its temporary file.
TEST_F(Convert, InterruptedLeavesNothing) {
  const auto files = [&] {
    size_t n = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(base_)) {
      n += entry.path().filename().string().starts_with("out.gguf") ? 1 : 0;
    }
    return n;
  };
  bool stopped = false;
  for (int i = 0; i < 50 && !stopped; ++i) {  // until the signal arrives before the end
    fs::remove(at("out.gguf"));
    Program program({kSample, at("out.gguf"), "--type", "iq4_xs", "--threads", "1"}, nullptr,
                    "convert");
    while (files() == 0 && program.running()) std::this_thread::yield();
    program.kill(SIGINT);
    const int status = program.wait();
    ASSERT_TRUE(status == 130 || status == 0) << status << program.err();
    const size_t whole = fs::exists(at("out.gguf")) ? 1 : 0;
    ASSERT_EQ(files(), whole);
    stopped = status == 130 && whole == 0;
  }
  EXPECT_TRUE(stopped);
}

TEST_F(Convert, EveryTypeRuns) {
  const std::pair<const char*, double> kTypes[] = {
      {"f32", 1e-9},    {"f16", 1e-9},   {"bf16", 1e-4},   {"q4_0", 0.06},   {"q4_1", 0.06},
      {"q5_0", 0.02},   {"q5_1", 0.02},  {"q8_0", 2e-3},   {"q2_k", 0.3},    {"q3_k_s", 0.15},
      {"q3_k_m", 0.1},  {"q3_k_l", 0.1}, {"q4_k_s", 0.06}, {"q4_k_m", 0.06}, {"q5_k_s", 0.02},
      {"q5_k_m", 0.02}, {"q6_k", 5e-3},  {"iq4_nl", 0.06}, {"iq4_xs", 0.06}, {"mxfp4", 0.1},
      {"tq1_0", 0.6},   {"tq2_0", 0.6},
  };
  const std::vector<float> wanted = logits(kSample);
  for (const auto& [type, bound] : kTypes) {
    const Ran ran = run({"convert", kSample, at("out.gguf"), "--type", type, "--json", "--force"});
    ASSERT_EQ(ran.status, 0) << type << ": " << ran.err;
    const auto report = nlohmann::json::parse(ran.out);
    EXPECT_EQ(report["bytes"], fs::file_size(at("out.gguf")));
    EXPECT_LE(error_of(logits(at("out.gguf")), wanted), bound) << type;
    for (const auto& t : report["tensors"]) {
      EXPECT_GT(t["cosine"].get<double>(), 0.85) << type << " " << t["name"];
    }
  }
}

TEST_F(Convert, QsfTypesRun) {
  const std::vector<float> wanted = logits(kSample);
  uint64_t before = UINT64_MAX;
  for (const auto& [type, bound] :
       {std::pair{"qsf4", 0.06}, std::pair{"qsf3_m", 0.025}, std::pair{"qsf3", 0.15},
        std::pair{"qsf2_m", 0.13}, std::pair{"qsf2", 0.5}, std::pair{"qsft", 0.8}}) {
    const Ran ran = run({"convert", kSample, at("out.qsf"), "--type", type, "--json", "--force"});
    ASSERT_EQ(ran.status, 0) << type << ": " << ran.err;
    EXPECT_LE(error_of(logits(at("out.qsf")), wanted), bound) << type;
    // In memory they are as dense as in the file.
    const auto info = nlohmann::json::parse(run({"info", at("out.qsf"), "--json"}).out);
    EXPECT_LE(info["plan"]["pinned"].get<double>(), 1.01 * info["bytes"].get<double>()) << type;
    const uint64_t bytes = fs::file_size(at("out.qsf"));
    EXPECT_LT(bytes, before);
    before = bytes;
    const Ran refused = run({"convert", at("out.qsf"), at("out.gguf")});
    EXPECT_NE(refused.status, 0);
    EXPECT_NE(refused.err.find("exists only in QSF"), std::string::npos) << refused.err;
    EXPECT_FALSE(fs::exists(at("out.gguf")));
    EXPECT_EQ(run({"convert", at("out.qsf"), at("out.gguf"), "--type", "q8_0"}).status, 0);
    EXPECT_LE(error_of(logits(at("out.gguf")), logits(at("out.qsf"))), 2e-3) << type;
    fs::remove(at("out.gguf"));
  }
}

TEST_F(Convert, DirectoriesConvertToFilesWithTheSameLogits) {
  for (const char* name : {"gemma3", "llama3", "qwen3", "smollm3"}) {
    const std::string directory = kSource + "/tests/data/hf/" + name;
    const Ran ran = run({"convert", directory, at(name)});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const auto tokens = [&](const std::string& model) {
      const Ran some = run({"logits", model, "--tokens", "1,5,9,20,33,40,50", "--out", at("some")});
      EXPECT_EQ(some.status, 0) << some.err;
      return floats_of(at("some"));
    };
    EXPECT_LE(error_of(tokens(at(name)), tokens(directory)), 1e-9) << name;
  }
}

TEST_F(Convert, IsDeterministic) {
  ASSERT_EQ(run({"convert", kSample, at("a"), "--type", "q3_k_m", "--threads", "1"}).status, 0);
  ASSERT_EQ(run({"convert", kSample, at("b"), "--type", "q3_k_m", "--threads", "4",
                 "--memory-budget", "1M"})
                .status,
            0);
  EXPECT_EQ(bytes_of(at("a")), bytes_of(at("b")));
}

TEST_F(Convert, LeavesNothingBehindWhenItFails) {
  const std::vector<std::string> wrong[] = {
      {"--type", "q9_9"},
      {"--type", "q4_0", "--memory-budget", "10k"},
      {"--type", "q4_0", "--imatrix", at("none")},
      {"--pure"},
      {"--type", "q4_0", "--imatrix", kSample},
  };
  for (std::vector<std::string> options : wrong) {
    options.insert(options.begin(), {"convert", kSample, at("out.gguf")});
    const Ran ran = run(options);
    EXPECT_NE(ran.status, 0);
    EXPECT_EQ(ran.err.substr(0, 8), "sluice: ") << ran.err;
    for (const auto& entry : fs::directory_iterator(base_)) {
      EXPECT_EQ(entry.path().filename(), "stderr");
    }
  }
}

// Weights with large activations on a text lose less: the logits on such a text are closer.
TEST_F(Convert, CalibrationImprovesTheLogitsOnItsText) {
  const std::string all = bytes_of(kSource + "/examples/models/heldout.txt"), text = at("text");
  const size_t length = test::long_suite() ? all.size() : 8000;
  std::ofstream(text) << all.substr(0, test::kSanitized ? 2000 : length);
  const auto loss = [&](const std::string& model) {
    const Ran ran = run({"perplexity", model, "--file", text, "--json"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    return nlohmann::json::parse(ran.out)["nll"].get<double>();
  };
  ASSERT_EQ(run({"convert", kSample, at("plain"), "--type", "tq2_0", "--pure"}).status, 0);
  const Ran ran = run(
      {"convert", kSample, at("seen"), "--type", "tq2_0", "--pure", "--calibrate", text, "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const auto report = nlohmann::json::parse(ran.out);
  size_t weighted = 0;
  for (const auto& t : report["tensors"]) {
    if (t["from"] == "F16") {
      EXPECT_TRUE(t["weighted"].get<bool>()) << t["name"];
      ++weighted;
    }
  }
  EXPECT_GT(weighted, 10u);
  EXPECT_LT(loss(at("seen")), loss(at("plain")));
  EXPECT_NE(run({"convert", kSample, at("seen"), "--type", "q2_k", "--calibrate", text, "--imatrix",
                 text})
                .status,
            0);
}

// Error feedback brings the logits of a text closer to the source's, although it was calibrated on
// another. The file does not depend on the number of threads.
TEST_F(Convert, GptqLowersTheDivergenceOnAnotherText) {
  const std::string file = bytes_of(kSource + "/examples/models/heldout.txt");
  const std::string all = test::long_suite() ? file : file.substr(0, 12000);
  const size_t half = all.find('\n', test::kSanitized ? 2000 : all.size() / 2);
  std::ofstream(at("text")) << all.substr(half, test::kSanitized ? 2000 : std::string::npos);
  std::ofstream(at("other")) << all.substr(0, test::kSanitized ? 2000 : half);
  const auto converted = [&](const std::string& name, const std::vector<std::string>& options) {
    std::vector<std::string> args = {"convert", kSample,  at(name),      "--type",
                                     "q4_0",    "--pure", "--calibrate", at("text")};
    args.insert(args.end(), options.begin(), options.end());
    const Ran ran = run(args);
    EXPECT_EQ(ran.status, 0) << ran.err;
  };
  const auto divergence = [&](const std::string& name) {
    const Ran ran = run(
        {"compare", at(name), kSample, "-f", at("other"), "-c", "256", "--chunks", "4", "--json"});
    return nlohmann::json::parse(ran.out)["logits"]["meanKl"].get<double>();
  };
  converted("without", {});
  converted("with", {"--gptq", "--threads", "1"});
  converted("threads", {"--gptq", "--threads", "3"});
  EXPECT_EQ(bytes_of(at("with")), bytes_of(at("threads")));
  EXPECT_LT(divergence("with"), 0.8 * divergence("without"));
  const Ran small = run({"convert", kSample, at("small"), "--type", "q4_0", "--calibrate",
                         at("text"), "--gptq", "--memory-budget", "1M"});
  EXPECT_EQ(small.status, 1);
  EXPECT_NE(small.err.find("--gptq needs --memory-budget of at least"), std::string::npos)
      << small.err;
}

// So it does for the experts of a mixture.
TEST_F(Convert, GptqLowersTheDivergenceOfMixtures) {
  const std::string mixture = kSource + "/tests/data/families/qwen3moe.gguf";
  const std::string all = bytes_of(kSource + "/examples/models/heldout.txt");
  std::ofstream(at("text")) << all.substr(0, test::kSanitized ? 1500 : 6000);
  std::ofstream(at("other")) << all.substr(20000, 2000);
  const auto divergence = [&](const std::vector<std::string>& options) {
    std::vector<std::string> args = {"convert",    mixture,       at("out"),  "--tensor-type",
                                     "_exps=q4_0", "--calibrate", at("text"), "--force"};
    args.insert(args.end(), options.begin(), options.end());
    const Ran ran = run(args);
    EXPECT_EQ(ran.status, 0) << ran.err;
    const Ran compared = run(
        {"compare", at("out"), mixture, "-f", at("other"), "-c", "200", "--chunks", "4", "--json"});
    return nlohmann::json::parse(compared.out)["logits"]["meanKl"].get<double>();
  };
  EXPECT_LT(divergence({"--gptq"}), 0.7 * divergence({}));
}

// --calibrate writes the importance of each layer; --skip-layers-ratio skips the least important.
TEST_F(Convert, MeasuresLayerImportance) {
  const std::string deep = kSource + "/tests/data/hf/qwen3";
  std::ofstream(at("text")) << "Once upon a time there was a little fox.";
  const auto none = run(
      {"logits", deep, "--tokens", "1,2,3", "--out", at("logits"), "--skip-layers-ratio", "0.5"});
  EXPECT_NE(none.status, 0);
  EXPECT_NE(none.err.find("--calibrate"), std::string::npos) << none.err;
  for (const char* name : {"worth.gguf", "worth.qsf"}) {
    const Ran ran = run({"convert", deep, at(name), "--calibrate", at("text"), "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const auto layers = nlohmann::json::parse(ran.out)["layers"];
    ASSERT_EQ(layers.size(), 12u);
    for (size_t i = 0; i < layers.size(); ++i) {
      const bool stays = i < 2 || i + 2 >= layers.size();
      EXPECT_EQ(layers[i]["stays"], stays) << i;
      if (!stays) {
        EXPECT_GT(layers[i]["divergence"].get<double>(), 0) << i;
      }
      EXPECT_LE(std::fabs(layers[i]["cosine"].get<double>()), 1.0001) << i;
    }
    const auto answer = [&](const char* ratio) {
      const Ran told = run({"logits", at(name), "--tokens", "1,2,3", "--out", at("logits"),
                            "--skip-layers-ratio", ratio});
      EXPECT_EQ(told.status, 0) << told.err;
      return bytes_of(at("logits"));
    };
    const std::string whole = answer("0");
    EXPECT_EQ(run({"logits", at(name), "--tokens", "1,2,3", "--out", at("logits")}).status, 0);
    EXPECT_EQ(bytes_of(at("logits")), whole);
    EXPECT_NE(answer("1"), whole);
    const Ran info = run({"info", at(name), "--json", "--skip-layers-ratio", "1"});
    EXPECT_EQ(nlohmann::json::parse(info.out)["layersSkipped"], layers.size() - 4);
    EXPECT_NE(run({"info", at(name), "--skip-layers-ratio", "1.5"}).status, 0);
  }
}

// It also writes the early-exit probes for --early-exit.
TEST_F(Convert, MeasuresEarlyExit) {
  const std::string deep = kSource + "/tests/data/hf/qwen3";
  std::ofstream(at("text")) << "Once upon a time there was a little fox.";
  const auto none = run({"run", deep, "-p", "fox", "--early-exit", "0.5"});
  EXPECT_NE(none.status, 0);
  EXPECT_NE(none.err.find("[INVALID_ARGUMENT]"), std::string::npos) << none.err;
  for (const char* name : {"exits.gguf", "exits.qsf"}) {
    const Ran ran = run({"convert", deep, at(name), "--calibrate", at("text"), "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const auto exits = nlohmann::json::parse(ran.out)["exits"];
    ASSERT_EQ(exits.size(), 9u);  // not the first nor the last two of twelve layers
    for (size_t i = 0; i < exits.size(); ++i) {
      EXPECT_EQ(exits[i]["layer"], i + 1);
      EXPECT_GE(exits[i]["settled"].get<double>(), 0);
      EXPECT_LE(exits[i]["settled"].get<double>(), 1);
      EXPECT_GE(exits[i]["told"].get<double>(), 0.5);
    }
    const auto layers_of = [&](const char* confidence) {
      const Ran told = run({"run", at(name), "-p", "fox", "-n", "8", "--temp", "0", "--early-exit",
                            confidence, "--json"});
      EXPECT_EQ(told.status, 0) << told.err;
      const auto made = nlohmann::json::parse(told.out);
      const double rows = made["earlyExitRows"].get<double>();
      EXPECT_LE(made["earlyExitLeft"].get<double>(), rows);
      return rows > 0 ? made["earlyExitLayers"].get<double>() / rows : 0;
    };
    EXPECT_EQ(layers_of("1"), 0);  // no token may exit
    EXPECT_EQ(layers_of("0"), 2);  // every token exits as soon as possible
    EXPECT_LE(layers_of("0.5"), 12);
    EXPECT_NE(run({"run", at(name), "-p", "fox", "--early-exit", "1.5"}).status, 0);
  }
}

// A checkpoint saved by torch.save, whole or in shards, gives the same bytes as its safetensors.
TEST_F(Convert, ReadsPyTorchCheckpoints) {
  const fs::path source = kSource + "/tests/data/hf/qwen3";
  ASSERT_EQ(run({"convert", source.string(), at("wanted")}).status, 0);
  const std::string file = bytes_of(source / "model.safetensors");
  hf::SafetensorsFile parsed;
  const gguf::Bytes bytes{reinterpret_cast<const uint8_t*>(file.data()), file.size()};
  ASSERT_TRUE(hf::parse_safetensors(bytes, bytes.size(), "model", &parsed)->done);
  for (const size_t shards : {1u, 2u}) {
    const fs::path folder = base_ / std::to_string(shards) / "qwen3";
    fs::create_directories(folder);
    for (const auto& entry : fs::directory_iterator(source)) {
      if (entry.is_regular_file() && entry.path().extension() != ".safetensors") {
        fs::copy_file(entry.path(), folder / entry.path().filename());
      }
    }
    std::string map;
    for (size_t s = 0; s < shards; ++s) {
      test::ZipBuilder zip;
      std::vector<test::TorchTensor> tensors;
      std::vector<std::string> storages;
      const std::string name = shards == 1
                                   ? "pytorch_model.bin"
                                   : "pytorch_model-0000" + std::to_string(s + 1) + "-of-00002.bin";
      for (size_t i = s; i < parsed.entries.size(); i += shards) {
        const hf::SafetensorsEntry& e = parsed.entries[i];
        const char* type = e.dtype == "BF16"  ? "BFloat16Storage"
                           : e.dtype == "F16" ? "HalfStorage"
                                              : "FloatStorage";
        uint64_t n = 1;
        for (const uint64_t d : e.shape) n *= d;
        tensors.push_back({e.name, type, std::to_string(storages.size()), e.shape, {}, 0, n});
        storages.push_back(file.substr(e.begin, e.end - e.begin));
        map += (map.empty() ? "\"" : ",\"") + e.name + "\":\"" + name + "\"";
      }
      zip.add("pytorch_model/data.pkl", test::pickled(tensors));
      for (size_t i = 0; i < storages.size(); ++i) {
        zip.add("pytorch_model/data/" + std::to_string(i), storages[i]);
      }
      std::ofstream(folder / name, std::ios::binary) << zip.build();
    }
    if (shards > 1) {
      std::ofstream(folder / "pytorch_model.bin.index.json") << R"({"weight_map":{)" + map + "}}";
    }
    const Ran ran = run({"convert", folder.string(), at("got"), "--force"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(bytes_of(at("got")), bytes_of(at("wanted"))) << shards;
    // If safetensors exist, they are read instead.
    std::ofstream(folder / "model.safetensors") << "no safetensors";
    EXPECT_NE(run({"convert", folder.string(), at("got"), "--force"}).status, 0);
  }
}

TEST_F(Convert, ReachesTheTargetSize) {
  const std::vector<float> wanted = logits(kSample);
  double before = 1e9;
  for (const char* size : {"750k", "3M"}) {
    const Ran ran = run({"convert", kSample, at("out"), "--target-size", size, "--json",
                         "--sensitivity", "off", "--force"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const double most = std::stod(size) * (size[1] == 'M' ? 1 << 20 : 1 << 10);
    EXPECT_LE(fs::file_size(at("out")), most);
    const auto report = nlohmann::json::parse(ran.out);
    EXPECT_GT(report["tensors"].size(), 10u);
    for (const auto& t : report["tensors"]) {
      EXPECT_GE(t["cosine"].get<double>(), 0.989) << t["name"];
      const bool rounds = t["type"] == "F32" || t["type"] == "F16";  // rounds each value by itself
      ASSERT_EQ(t.contains("outliers"), !rounds) << t["name"];
      if (!rounds) {
        EXPECT_GT(t["outliers"]["share"].get<double>(), 0.001) << t["name"];
        EXPECT_EQ(t["outliers"]["are"], "kept") << t["name"];
      }
    }
    const double error = error_of(logits(at("out")), wanted);
    EXPECT_LT(error, before) << size;
    before = error;
  }
  EXPECT_EQ(before, 0);  // everything fits
  const Ran small = run(
      {"convert", kSample, at("out"), "--target-size", "300k", "--sensitivity", "off", "--force"});
  EXPECT_NE(small.err.find("a cosine of at least 0.99"), std::string::npos) << small.err;
  // An impossible size is an error before the text is opened.
  const Ran early = run(
      {"convert", kSample, at("out"), "--target-size", "100k", "--calibrate", at("no such text")});
  EXPECT_NE(early.err.find("in the smallest types"), std::string::npos) << early.err;
}

// Both measurements use a text from standard input.
TEST_F(Convert, ReadsTheCalibrationTextOnce) {
  std::ofstream(at("text")) << "Once upon a time there was a little fox.";
  const std::string command = sluice::test::program_path("sluice") + " convert " + kSource +
                              "/tests/data/hf/qwen3 " + at("out") +
                              " --target-size 500k --min-cosine 0.5 --sensitivity measured --quiet "
                              "--calibrate - < " +
                              at("text") + " > " + at("report") + " 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << bytes_of(at("report"));
}

// The same file for any number of threads, and a sensitivity for each matrix.
TEST_F(Convert, MeasuresTheSensitivityOfEachTensor) {
  const std::string deep = kSource + "/tests/data/hf/qwen3";
  ASSERT_EQ(run({"convert", deep, at("q8"), "--type", "q4_0"}).status, 0);
  const std::string size = std::to_string(fs::file_size(at("q8")) * 5 / 4);
  std::ofstream(at("text")) << "Once upon a time there was a little fox.";
  std::string first;
  for (const char* threads : {"1", "3"}) {
    const Ran ran =
        run({"convert", deep, at("out"), "--target-size", size, "--sensitivity", "measured",
             "--calibrate", at("text"), "--threads", threads, "--json", "--force"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_LE(fs::file_size(at("out")), std::stoull(size));
    const auto report = nlohmann::json::parse(ran.out);
    EXPECT_FALSE(report["sensitivity"]["ownText"].get<bool>());
    EXPECT_GT(report["sensitivity"]["measurements"].get<int>(), 0);
    int known = 0;
    for (const auto& t : report["tensors"]) {
      if (!t.contains("sensitivity") || t["sensitivityOf"] != "alone") continue;
      EXPECT_GT(t["sensitivity"].get<double>(), 0) << t["name"];
      ++known;
    }
    EXPECT_GT(known, 10);
    const std::string bytes = bytes_of(at("out"));
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first) << threads;
  }
  // Data besides the weights counts towards the target size.
  const Ran told = run({"convert", deep, at("out"), "--target-size", size, "--calibrate",
                        at("text"), "--cluster-head", "--sensitivity", "off", "--force"});
  ASSERT_EQ(told.status, 0) << told.err;
  EXPECT_LE(fs::file_size(at("out")), std::stoull(size));
}

TEST_F(Convert, ReportsWhereSensitivitiesCannotBeMeasured) {
  const std::vector<std::string> tight = {"convert", kSample,           at("out"), "--target-size",
                                          "750k",    "--memory-budget", "1M"};
  std::vector<std::string> must = tight;
  must.insert(must.end(), {"--sensitivity", "measured"});
  const Ran refused = run(must);
  EXPECT_NE(refused.status, 0);
  EXPECT_NE(refused.err.find("[BUDGET_TOO_SMALL]"), std::string::npos) << refused.err;
  EXPECT_FALSE(fs::exists(at("out")));
  std::vector<std::string> may = tight;
  may.push_back("--json");
  const Ran ran = run(may);
  ASSERT_EQ(ran.status, 0) << ran.err;
  const auto report = nlohmann::json::parse(ran.out);
  EXPECT_FALSE(report["sensitivity"]["unmeasured"].get<std::string>().empty());
  EXPECT_GT(report["tensors"].size(), 10u);
  for (const auto& t : report["tensors"]) EXPECT_FALSE(t.contains("sensitivity")) << t["name"];
  const std::string bytes = bytes_of(at("out"));
  std::vector<std::string> off(tight.begin(), tight.begin() + 5);
  off.insert(off.end(), {"--sensitivity", "off", "--force"});
  ASSERT_EQ(run(off).status, 0);
  EXPECT_EQ(bytes_of(at("out")), bytes);
  EXPECT_NE(run({"convert", kSample, at("no"), "--type", "q4_0", "--sensitivity", "off"}).status,
            0);
  EXPECT_NE(run({"convert", kSample, at("no"), "--target-size", "1M", "--sensitivity", "x"}).status,
            0);
  EXPECT_FALSE(fs::exists(at("no")));
}

TEST_F(Convert, TakesTypesByNameAndASplitEmbedding) {
  const Ran ran = run({"convert", "--tensor-type", "attn=q6_k", kSample, "--tensor-type",
                       "attn_output=q8_0", at("out.qsf"), "--cluster-embedding", "q4_0", "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const auto report = nlohmann::json::parse(ran.out);
  size_t found = 0;
  for (const auto& t : report["tensors"]) {
    const std::string name = t["name"];
    const char* wanted = name == "token_embd_rest.weight"       ? "Q4_0"
                         : name.ends_with("attn_output.weight") ? "Q8_0"
                         : name.ends_with("attn_q.weight")      ? "Q6_K"
                         : name == "output.weight"              ? "F16"
                                                                : nullptr;
    if (wanted == nullptr) continue;
    EXPECT_EQ(t["type"], wanted) << name;
    ++found;
  }
  EXPECT_EQ(found, 10u);  // in four layers
  EXPECT_LT(error_of(logits(at("out.qsf")), logits(kSample)), 0.01);
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--tensor-type", "attn"},
                                                {"--tensor-type", "=q4_0"},
                                                {"--tensor-type", "attn_q=q5"},
                                                {"--tensor-type", "attn_x=q4_0"},
                                                {"--cluster-embedding", "q4"}}) {
    const Ran bad = run({"convert", kSample, at("bad.qsf"), wrong[0], wrong[1]});
    EXPECT_NE(bad.err.find("INVALID_ARGUMENT"), std::string::npos) << wrong[1] << bad.err;
    EXPECT_FALSE(fs::exists(at("bad.qsf")));
  }
}

TEST_F(Convert, ReportsThePerplexityBeforeAndAfter) {
  std::ofstream(at("text")) << "Once upon a time there was a little fox who lived in the forest.";
  const Ran ran =
      run({"convert", kSample, at("out"), "--type", "q2_k", "--perplexity", at("text"), "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const auto told = nlohmann::json::parse(ran.out)["perplexity"];
  const auto of = [this](const std::string& model) {
    const Ran measured = run({"perplexity", model, "--file", at("text"), "--json"});
    return nlohmann::json::parse(measured.out)["perplexity"].get<double>();
  };
  const double before = told["before"]["perplexity"], after = told["after"]["perplexity"];
  EXPECT_NEAR(before, of(kSample), 1e-6);
  EXPECT_NEAR(after, of(at("out")), 1e-6);
  EXPECT_NE(before, after);
  EXPECT_GT(told["tokens"].get<int>(), 10);
  std::ofstream(at("empty"));
  for (const char* text : {"empty", "nowhere"}) {  // an error before anything is written
    EXPECT_NE(run({"convert", kSample, at("none"), "--perplexity", at(text)}).status, 0);
    EXPECT_FALSE(fs::exists(at("none")));
  }
}

TEST_F(Convert, RefusesToOverwriteItsSource) {
  fs::copy_file(kSample, at("model.gguf"));
  fs::create_symlink(at("model.gguf"), at("link.gguf"));
  const std::string before = bytes_of(kSample);
  for (const char* out : {"model.gguf", "link.gguf"}) {
    const Ran ran = run({"convert", at("model.gguf"), at(out), "--type", "q4_0"});
    EXPECT_NE(ran.status, 0);
    EXPECT_NE(ran.err.find("INVALID_ARGUMENT"), std::string::npos) << ran.err;
    EXPECT_EQ(bytes_of(at("model.gguf")), before);
    EXPECT_NE(run({"convert", at("model.gguf"), at(out), "--type", "q4_0", "--force"}).status, 0);
    EXPECT_EQ(bytes_of(at("model.gguf")), before);
  }
}

TEST_F(Convert, KeepsAFileThatExistsUnlessForced) {
  std::ofstream(at("out.gguf")) << "kept";
  std::ofstream(at("text")) << "Once upon a time there was a little fox.";
  const auto convert = [this](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"convert", kSample, at("out.gguf"), "--type", "q8_0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  const Ran kept = convert({});
  EXPECT_EQ(kept.status, 1);
  EXPECT_EQ(kept.err, "sluice: \"" + at("out.gguf") +
                          "\" exists; --force overwrites it [INVALID_ARGUMENT]\n");
  EXPECT_EQ(bytes_of(at("out.gguf")), "kept");
  EXPECT_EQ(convert({"--force", "--type", "q9"}).status, 2);
  EXPECT_EQ(bytes_of(at("out.gguf")), "kept");
  EXPECT_EQ(convert({"--force"}).status, 0);
  EXPECT_GT(fs::file_size(at("out.gguf")), 1000u);
  fs::remove(at("out.gguf"));
  std::ofstream(at("imatrix")) << "kept";
  EXPECT_EQ(convert({"--calibrate", at("text"), "--save-imatrix", at("imatrix")}).status, 1);
  EXPECT_EQ(bytes_of(at("imatrix")), "kept");
  EXPECT_FALSE(fs::exists(at("out.gguf")));
}

}  // namespace
}  // namespace sluice::tools
