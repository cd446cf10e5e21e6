// Edge cases of the CLI: wrong option values give an error that names the range, outputs are
// complete or absent, a full disk is reported, and strings in untrusted files cannot control the
// terminal.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "../paths.h"
#include "gguf/gguf.h"
#include "gguf/printable.h"
#include "io/cache_native.h"
#include "program_util.h"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

const std::string kModel = sluice::test::source_dir() + "/tests/data/families/llama-biases.gguf";

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

class Cli : public ProgramTest {
 protected:
  // Runs it; expects a one-line error with this code that contains `says`.
  void expect_refused(const std::vector<std::string>& arguments, const std::string& code,
                      const std::string& says) const {
    const Ran ran = run(arguments);
    std::string line;
    for (const std::string& a : arguments) line += a + " ";
    EXPECT_GT(ran.status, 0) << line;
    EXPECT_EQ(ran.err.rfind("sluice: ", 0), 0u) << line << ran.err;
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << line << ran.err;
    EXPECT_NE(ran.err.find("[" + code + "]"), std::string::npos) << line << ran.err;
    EXPECT_NE(ran.err.find(says), std::string::npos) << line << ran.err;
  }
  [[nodiscard]] size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(base_), {}));
  }
};

TEST_F(Cli, UnknownWordsNameTheNearest) {
  const struct {
    std::vector<std::string> arguments;
    const char* says;
  } cases[] = {
      {{"runn", kModel}, "\"runn\" is not a command: did you mean run;"},
      {{"generate", kModel}, "\"generate\" is not a command; sluice --help lists"},
      {{"tok", kModel}, "did you mean tokenize;"},
      {{kModel, "-p", "x"}, "is a model: the command comes before it"},
      {{"-m", kModel, "-p", "x"}, "the command comes before -m, such as sluice run;"},
      {{"run", kModel, "-p", "x", "--temprature", "0"},
       "--temprature is not an option of run: did you mean --temperature; sluice run --help"},
      {{"run", kModel, "-p", "x", "--memory-buget=1M"}, "did you mean --memory-budget;"},
      {{"serve", kModel, "--frobnicate"},
       "--frobnicate is not an option of serve; sluice serve --help"},
      {{"run", kModel, "x", "another"}, "\"another\" is one argument too many"},
      {{"run", kModel, "-p", "x", "another"}, "give either PROMPT or --prompt, not both"},
      {{"\x1b[2Jx"}, "?[2Jx"}};
  for (const auto& [arguments, says] : cases) {
    expect_refused(arguments, "INVALID_ARGUMENT", says);
    EXPECT_EQ(run(arguments).status, 2);
  }
  const Ran none = run({});
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("tokenize"), std::string::npos) << none.err;
}

TEST_F(Cli, ListOptionsDoNotConsumeTheModelArgument) {
  const std::vector<std::string> rest = {kModel, "-p", "2", "-n", "1", "-r", "1", "-o", "json"};
  for (const std::vector<std::string>& list : std::vector<std::vector<std::string>>{
           {"-t", "1"}, {"-t", "1,2"}, {"-t", "1", "-t", "2"}, {"-d", "0"}, {"-d", "0,3"}}) {
    std::vector<std::string> arguments = {"bench"};
    arguments.insert(arguments.end(), list.begin(), list.end());
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    const Ran ran = run(arguments);
    ASSERT_EQ(ran.status, 0) << list[1] << ran.err;
    const size_t rows = list.size() > 2 || list[1].find(',') != std::string::npos ? 2 : 1;
    EXPECT_EQ(nlohmann::json::parse(ran.out).size(), rows);
  }
}

TEST_F(Cli, BenchBreakdownAddsUp) {
  const std::vector<std::string> command = {"bench", kModel, "-p", "4",          "-n",
                                            "2",     "-r",   "1",  "--breakdown"};
  std::vector<std::string> as_json = command;
  as_json.push_back("--json");
  const Ran ran = run(as_json);
  ASSERT_EQ(ran.status, 0) << ran.err;
  for (const char* phase : {"prefillBreakdown", "decodeBreakdown"}) {
    const nlohmann::json times = nlohmann::json::parse(ran.out)[0][phase];
    double sum = 0;
    for (const auto& [part, ms] : times.items()) sum += part == "total" ? 0 : ms.get<double>();
    EXPECT_GT(sum, 0) << phase;
    EXPECT_NEAR(sum, times["total"].get<double>(), 1e-6) << phase;
    EXPECT_GT(times["ffn"].get<double>(), 0) << phase;
    EXPECT_EQ(times["experts"].get<double>(), 0) << phase;
  }
  const Ran table = run(command);
  for (const char* text : {"attentionProjections", "prefill", "decode", "total ms/token"}) {
    EXPECT_NE(table.out.find(text), std::string::npos) << table.out;
  }
  expect_refused({"bench", kModel, "--breakdown", "--draft", "off"}, "INVALID_ARGUMENT",
                 "--breakdown");
}

TEST_F(Cli, ErrorsNameTheRangeOfEveryNumber) {
  const std::string context = " to 16777216";
  const std::vector<std::array<std::string, 4>> cases = {
      {"bench", "-d", "-40000000", "0" + context},
      {"bench", "-d", "0,-5", "0" + context},
      {"bench", "-d", "99999999999999999999", "0" + context},
      {"bench", "-t", "-3", "0 to 64"},
      {"bench", "-t", "2,65", "0 to 64"},
      {"bench", "-t", "[1]", "0 to 64"},
      {"bench", "-p", "-10", "0" + context},
      {"bench", "-p", "2147483647", "0" + context},
      {"bench", "-n", "-1", "0" + context},
      {"bench", "-n", "0x10", "0" + context},
      {"bench", "-r", "0", "1 to 1048576"},
      {"bench", "--threads", "4294967297", "0 to 64"},
      {"run", "-n", "-2", "-1 to 2147483647"},
      {"run", "--top-k", "99999999999", "0 to 2147483647"},
      {"run", "--repeat-last-n", "99999999999", "-1 to 2147483647"},
      {"info", "--threads", "-1", "0 to 64"},
      {"info", "--ctx", "16777217", "0" + context},
      {"info", "--ctx", "1.5", "0" + context},
      {"info", "--ctx", "", "0" + context}};
  for (const auto& [command, option, value, range] : cases) {
    std::vector<std::string> arguments = {command, kModel, option, value};
    if (command == "run") arguments.insert(arguments.end(), {"-p", "Hi"});
    expect_refused(arguments, "INVALID_ARGUMENT", range);
  }
  expect_refused({"perplexity", kModel, "--file", kModel, "--stride", "-1"}, "INVALID_ARGUMENT",
                 "1" + context);
}

TEST_F(Cli, SizeOptionsAcceptOnlySizes) {
  for (const char* bad : {"", "-1", "-0", "nan", "inf", "0x10", "+1", " 1", "M", "1MM", "1Q", "1e",
                          "1.5.5G", "1iG"}) {
    expect_refused({"info", kModel, "--memory-budget", bad}, "INVALID_ARGUMENT", "is not a size");
    if (*bad == '\0') continue;  // not given
    expect_refused({"rm", "--cache-dir", at("cache"), std::string("--max-size=") + bad},
                   "INVALID_ARGUMENT", "is not a size");
  }
  for (const char* large : {"8388609G", "99999999999999999999999999999999"}) {
    expect_refused({"info", kModel, "--memory-budget", large}, "INVALID_ARGUMENT",
                   "is out of range");
  }
  for (const auto& [text, bytes] :
       std::vector<std::pair<const char*, uint64_t>>{{"64M", 64u << 20},
                                                     {"1.5G", 3ull << 29},
                                                     {"16777216", 1u << 24},
                                                     {"65536k", 1u << 26},
                                                     {"64MiB", 1u << 26},
                                                     {"64MB", 1u << 26},
                                                     {"64 mb", 1u << 26},
                                                     {"8388608G", 1ull << 53}}) {
    const Ran ran = run({"info", kModel, "--json", "--memory-budget", text});
    ASSERT_EQ(ran.status, 0) << text << ran.err;
    EXPECT_EQ(nlohmann::json::parse(ran.out)["plan"]["budget"], bytes) << text;
  }
}

TEST_F(Cli, ABudgetThatLimitsTheContextSaysSo) {
  const std::string model = test::source_dir() + "/examples/models/sluice-tales-Q8_0.gguf";
  std::vector<std::string> arguments = {
      "run", model, "-p", "Once", "-n", "1", "-t", "1", "--memory-budget", "1500k"};
  const Ran limited = run(arguments);
  EXPECT_EQ(limited.status, 0);
  EXPECT_NE(limited.err.find("limits the context to 256 tokens"), std::string::npos) << limited.err;
  arguments.insert(arguments.end(), {"--ctx", "256"});
  EXPECT_EQ(run(arguments).err.find("limits the context"), std::string::npos);
}

// The example in docs/memory.md is what its command prints.
TEST_F(Cli, TheDocumentedMemoryPlanIsReal) {
  std::ifstream file(test::source_dir() + "/docs/memory.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  const std::string model = "examples/models/sluice-tales-Q8_0.gguf";
  const std::string command = " --memory-budget 1500k --threads 1 --kernels scalar --json";
  size_t at = page.find("sluice info " + model + command);
  ASSERT_NE(at, std::string::npos);
  const Ran ran = run({"info", test::source_dir() + "/" + model, "--memory-budget", "1500k",
                       "--threads", "1", "--kernels", "scalar", "--json"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  const nlohmann::json plan = nlohmann::json::parse(ran.out)["plan"];
  at = page.find("```\n", at) + 4;
  std::istringstream lines(page.substr(at, page.find("```", at) - at));
  uint64_t sum = 0, total = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, digits;
    words >> name >> digits;
    std::erase(digits, ',');
    const uint64_t bytes = std::stoull(digits);
    EXPECT_EQ(plan[name], bytes) << name;
    (name == "total" ? total : sum) += bytes;
  }
  EXPECT_GT(sum, 0u);
  EXPECT_EQ(sum, total);
}

TEST_F(Cli, ErrorsNameTokensOutsideTheVocabulary) {
  const auto refused = [this](const char* tokens, const char* says) {
    expect_refused({"logits", kModel, "--tokens", tokens, "--out", at("out")}, "INVALID_ARGUMENT",
                   says);
    expect_refused({"dump", kModel, "--tokens", tokens, "--out", at("out")}, "INVALID_ARGUMENT",
                   says);
    EXPECT_FALSE(fs::exists(at("out"))) << tokens;
  };
  refused("1,4294967297", "4294967297");
  refused("99999999999999999999,1", "99999999999999999999");
  refused("1,2147483647", "2147483647");
  refused("1,-1", "-1");
  for (const char* bad : {"1,,2", "1,2,", ",1", "1;2", "0x1", "1 ,2"})
    refused(bad, "is not a list");
}

TEST_F(Cli, AnAdaptersScaleFollowsTheLastEqualsSign) {
  expect_refused({"run", kModel, "-p", "x", "--lora", at("no=such.gguf=0.5")}, "NOT_FOUND",
                 at("no=such.gguf") + "\"");
}

TEST_F(Cli, TheSeedIsRandomUnlessItIsGiven) {
  // Of 64 tokens at this temperature, two seeds have no two alike.
  const auto text = [this](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"run",     kModel, "-p",      "Once", "-n",      "64",
                                          "--temp",  "5",    "-t",      "1",    "--top-k", "0",
                                          "--top-p", "1",    "--min-p", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.out;
  };
  EXPECT_NE(text({}), text({}));
  EXPECT_EQ(text({"--seed", "7"}), text({"--seed", "7"}));
  EXPECT_NE(text({"--seed", "7"}), text({"--seed", "8"}));
}

TEST_F(Cli, LlamaCppsSpellingsAreUnderstood) {
  const auto text = [this](const std::vector<std::string>& model) {
    std::vector<std::string> arguments = {"run", "-p", "Once", "-n", "4", "--temp", "0", "-t", "1"};
    arguments.insert(arguments.end(), model.begin(), model.end());
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.out;
  };
  const std::string expected = text({kModel});
  EXPECT_EQ(text({"-m", kModel}), expected);
  EXPECT_EQ(text({"--model", kModel, "-c", "64"}), expected);
  EXPECT_EQ(text({"-m", kModel, "-ctk", "f16", "-ctv", "f16"}), expected);
  std::ofstream(at("prompt")) << "Once";
  const Ran from_file = run({"run", "-m", kModel, "-f", at("prompt"), "-n", "4", "--temperature",
                             "0", "--ctx-size", "64"});
  EXPECT_EQ(from_file.out, expected) << from_file.err;
  std::ofstream(at("grammar")) << "root ::= \"fox\"";
  EXPECT_EQ(text({kModel, "--grammar-file", at("grammar")}), "Oncefox\n");
  for (const char* name : {"-md", "--model-draft"})
    EXPECT_EQ(text({kModel, name, kModel}), expected);
  expect_refused({"serve", kModel, "-np", "65"}, "INVALID_ARGUMENT", "--parallel");
  expect_refused({"serve", kModel, "--chat-template", "chatml"}, "INVALID_ARGUMENT", "chatml");
  expect_refused({"serve", kModel, "--chat-template", "{% if %}"}, "CHAT_TEMPLATE", "template");
  expect_refused({"serve", kModel, "--chat-template-file", at("nowhere")}, "NOT_FOUND", "nowhere");
  const Ran info = run({"info", kModel, "--json", "-ctk", "q8_0"});
  EXPECT_EQ(nlohmann::json::parse(info.out)["plan"]["kvType"], "q8_0,f16") << info.err;
  expect_refused({"run", kModel, "-p", "x", "-ngl", "99"}, "INVALID_ARGUMENT", "--device webgpu");
  expect_refused({"run", kModel, "-p", "x", "-ctk"}, "INVALID_ARGUMENT", "-ctk");
}

TEST_F(Cli, InfoPrintsRatesWithoutExponents) {
  const Ran ran = run({"info", kModel});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out.find(" tokens/s"), std::string::npos) << ran.out;
  EXPECT_EQ(ran.out.find("e+"), std::string::npos) << ran.out;
}

TEST_F(Cli, ErrorsNameLayersOutsideTheModel) {
  for (const char* bad : {"999", "2", "-1", "", "1x", "al"}) {
    expect_refused(
        {"dump", kModel, "--tokens", "1,2", "--out", at("out"), "--layer=" + std::string(bad)},
        "INVALID_ARGUMENT", *bad == 0 ? "layer" : "must be 0 to 1");
    EXPECT_FALSE(fs::exists(at("out"))) << bad;
  }
  const Ran ran = run({"dump", kModel, "--tokens", "1,2", "--out", at("out"), "--layer", "1"});
  ASSERT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(bytes_of(at("out/index.txt")).find("-1."), std::string::npos);
  EXPECT_EQ(bytes_of(at("out/index.txt")).find("-0."), std::string::npos);
}

TEST_F(Cli, OutputsAreNeverTheModel) {
  const std::string model = at("model.gguf"), good = bytes_of(kModel);
  write_bytes(model, good);
  fs::create_hard_link(model, at("hard"));
  fs::create_symlink(model, at("soft"));
  for (const std::string& out : {model, at("hard"), at("soft"), at("./model.gguf")}) {
    expect_refused({"logits", model, "--tokens", "1,2", "--out", out}, "INVALID_ARGUMENT",
                   "is a file of the model");
    EXPECT_EQ(bytes_of(model), good) << out;
  }
  fs::rename(model, at("index.txt"));  // the name of a file that dump writes
  expect_refused({"dump", at("index.txt"), "--tokens", "1,2", "--out", base_.string()},
                 "INVALID_ARGUMENT", "is a file of the model");
  EXPECT_EQ(bytes_of(at("index.txt")), good);

  fs::copy(sluice::test::source_dir() + "/tests/data/hf/qwen3", at("hf"));
  const std::string weights = bytes_of(at("hf/model.safetensors"));
  ASSERT_FALSE(weights.empty());
  expect_refused({"logits", at("hf"), "--tokens", "1,2", "--out", at("hf/model.safetensors")},
                 "INVALID_ARGUMENT", "is a file of the model");
  EXPECT_EQ(bytes_of(at("hf/model.safetensors")), weights);
}

// The model as two split files: all metadata in the first, all tensors in the second.
TEST_F(Cli, OutputsAreNeverPartOfASplitModel) {
  const std::string whole = bytes_of(kModel);
  gguf::Header header;
  const auto parsed = gguf::parse_header(
      {reinterpret_cast<const uint8_t*>(whole.data()), whole.size()}, whole.size(), &header);
  ASSERT_TRUE(parsed.ok() && parsed->done);
  const gguf::Bytes last = header.metadata.back().value.bytes;
  const auto* begin = reinterpret_cast<const uint8_t*>(whole.data());
  const size_t metadata_end = static_cast<size_t>(last.data() + last.size() - begin);
  const auto number = [](uint64_t n, size_t bytes) {
    std::string out;
    for (size_t i = 0; i < bytes; ++i) out += static_cast<char>(n >> (8 * i));
    return out;
  };
  const auto pair = [&number](const std::string& key, uint64_t value) {
    return number(key.size(), 8) + key + number(4, 4) + number(value, 4);
  };
  const auto head = [&](uint64_t tensors, uint64_t pairs) {
    return "GGUF" + number(3, 4) + number(tensors, 8) + number(pairs, 8);
  };
  constexpr size_t kHead = 24;
  const std::string first = at("m-00001-of-00002.gguf"), second = at("m-00002-of-00002.gguf");
  const std::string count = pair("split.count", 2);
  write_bytes(first, head(0, header.metadata.size() + 2) +
                         whole.substr(kHead, metadata_end - kHead) + count + pair("split.no", 0));
  const gguf::Tensor* end = nullptr;
  for (const gguf::Tensor& t : header.tensors) {
    if (end == nullptr || t.name.data() > end->name.data()) end = &t;
  }
  const size_t directory =
      static_cast<size_t>(reinterpret_cast<const uint8_t*>(end->name.data()) - begin) +
      end->name.size() + 4 + 8 * end->n_dims + 4 + 8 - metadata_end;
  std::string rest = head(header.tensors.size(), 2) + count + pair("split.no", 1) +
                     whole.substr(metadata_end, directory);
  while (rest.size() % header.alignment != 0) rest += '\0';
  write_bytes(second, rest + whole.substr(header.data_offset));
  ASSERT_EQ(run({"logits", first, "--tokens", "1,2", "--out", at("out")}).status, 0)
      << bytes_of(at("stderr"));
  const std::string good = bytes_of(second);
  expect_refused({"logits", first, "--tokens", "1,2", "--out", second}, "INVALID_ARGUMENT",
                 "is a file of the model");
  EXPECT_EQ(bytes_of(second), good);
}

TEST_F(Cli, AFailureLeavesTheOutputUnchanged) {
  write_bytes(at("out"), "kept");
  fs::create_directory(at("folder"));
  write_bytes(at("folder/index.txt"), "kept");
  const size_t before = files();
  expect_refused({"logits", kModel, "--tokens", "1,99999999", "--out", at("out")},
                 "INVALID_ARGUMENT", "99999999");
  expect_refused({"dump", kModel, "--tokens", "1,99999999", "--out", at("folder")},
                 "INVALID_ARGUMENT", "99999999");
  EXPECT_EQ(bytes_of(at("out")), "kept");
  EXPECT_EQ(bytes_of(at("folder/index.txt")), "kept");
  EXPECT_EQ(files(), before + 1);  // the file of standard error

  fs::permissions(at("out"), fs::perms(0640));
  fs::create_symlink("out", at("link"));
  ASSERT_EQ(run({"logits", kModel, "--tokens", "1,2,3", "--out", at("link")}).status, 0);
  EXPECT_TRUE(fs::is_symlink(at("link")));
  EXPECT_EQ(fs::status(at("out")).permissions(), fs::perms(0640));
  EXPECT_EQ(fs::file_size(at("out")) % (3 * sizeof(float)), 0u);
  EXPECT_GT(fs::file_size(at("out")), 4u);
  EXPECT_EQ(files(), before + 2);
  expect_refused({"logits", kModel, "--tokens", "1", "--out", at("no/such/folder")}, "IO",
                 "cannot write the file");
}

TEST_F(Cli, AFullDiskIsReported) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  write_bytes(at("text"), "Once upon a time");
  const std::vector<std::vector<std::string>> commands = {
      {"tokenize", kModel, "--file", at("text")},
      {"info", kModel},
      {"info", kModel, "--json"},
      {"perplexity", kModel, "--file", at("text")},
      {"bench", kModel, "-p", "2", "-n", "1", "-r", "1"},
      {"dump", kModel, "--tokens", "1,2", "--out", at("dump")},
      {"logits", kModel, "--tokens", "1,2", "--out", at("logits")},
      {"--version"},
      {"--help"},
      {"bench", "--help"}};
  for (const auto& command : commands) {
    ASSERT_EQ(run(command).status, 0) << command[0];
    const Ran ran = run(command, "/dev/full");
    EXPECT_EQ(ran.status, 1) << command[0];
    EXPECT_NE(ran.err.find("[IO]"), std::string::npos) << command[0] << ran.err;
  }
  expect_refused({"logits", kModel, "--tokens", "1,2", "--out", "/dev/full"}, "IO", "/dev/full");
}

// No control characters except line ends, and valid UTF-8.
void expect_harmless(std::string text, const std::string& what) {
  std::erase(text, '\n');
  EXPECT_EQ(gguf::printable(text, text.size()), text) << what;
}

TEST_F(Cli, StringsInAFileCannotControlTheTerminal) {
  const std::string good = bytes_of(kModel);
  gguf::Header header;
  const auto parsed = gguf::parse_header(
      {reinterpret_cast<const uint8_t*>(good.data()), good.size()}, good.size(), &header);
  ASSERT_TRUE(parsed.ok() && parsed->done);
  const std::string evil = "\x1b[2J\x7f\xc2\x9b\xff\r\x07";
  const auto with = [&](std::string_view old) {
    std::string bytes = good, text;
    while (text.size() < old.size()) text += evil;
    bytes.replace(static_cast<size_t>(old.data() - good.data()), old.size(),
                  text.substr(0, old.size()));
    write_bytes(at("evil.gguf"), bytes);
    return at("evil.gguf");
  };
  const std::string named = with(header.get_string("general.name").value());
  const Ran text = run({"info", named});
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_NE(text.out.find("?[2J"), std::string::npos);
  expect_harmless(text.out, "info");
  const Ran json = run({"info", named, "--json"});
  ASSERT_EQ(json.status, 0) << json.err;
  expect_harmless(json.out, "info --json");
  EXPECT_EQ(nlohmann::json::parse(json.out)["name"].get<std::string>().rfind("?[2J", 0), 0u);

  for (const std::string& file :
       {with(header.get_string("general.architecture").value()), with(header.tensors[1].name)}) {
    const Ran ran = run({"info", file});
    EXPECT_GT(ran.status, 0);
    expect_harmless(ran.err, file);
  }
  // An address in a cache directory.
  io::CacheHeader entry;
  entry.url = "http://host/\x1b[2J\u009b.gguf";
  entry.etag = "1";
  entry.size = 5;
  auto store = io::ChunkStore::create(at("cache"), entry);
  ASSERT_TRUE(store.ok());
  io::ChunkStore::Writer writer(store->get(), 0);
  const std::array<uint8_t, 5> chunk = {};
  ASSERT_TRUE(writer.append(chunk));
  store->reset();
  for (const char* how : {"--", "--json"}) {
    const Ran list = run({"list", "--cache-dir", at("cache"), how});
    EXPECT_NE(list.out.find("[2J"), std::string::npos) << list.out << list.err;
    expect_harmless(list.out, std::string("list ") + how);
  }
  const Ran evicted = run({"rm", "--cache-dir", at("cache"), "--max-size", "0"});
  EXPECT_EQ(evicted.status, 0) << evicted.err;
  expect_harmless(evicted.out, "rm");
  const Ran option = run({"info", "--\x1b[2J", kModel});
  EXPECT_GT(option.status, 0);
  expect_harmless(option.err, "an option");
}

TEST_F(Cli, ErrorsNameNonFiniteWeights) {
  std::string bytes = bytes_of(sluice::test::source_dir() + "/tests/data/quant/llama-Q8_0.gguf");
  gguf::Header header;
  const auto parsed = gguf::parse_header(
      {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, bytes.size(), &header);
  ASSERT_TRUE(parsed.ok() && parsed->done);
  const gguf::Tensor* tensor = header.find_tensor("blk.0.ffn_down.weight");
  ASSERT_NE(tensor, nullptr);
  const uint64_t offset = tensor->offset;
  bytes[offset] = bytes[offset + 1] = '\xff';  // a block's scale
  write_bytes(at("nan.gguf"), bytes);
  write_bytes(at("text"), "Once upon a time");
  const std::vector<std::vector<std::string>> commands = {
      {"perplexity", at("nan.gguf"), "--file", at("text")},
      {"logits", at("nan.gguf"), "--tokens", "1,2", "--out", at("out")},
      {"run", at("nan.gguf"), "-p", "Once", "-n", "4", "--json"}};
  for (const auto& command : commands) {
    expect_refused(command, "BAD_WEIGHTS", "blk.0.ffn_down.weight");
  }
}

}  // namespace
}  // namespace sluice::tools
