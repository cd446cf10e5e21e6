// Prompts with pictures from the file to the greedy tokens (../shared/fixtures/vision): layout,
// encoder and text model together, with all memory and in the smallest budget; what a session holds
// of a conversation is not encoded again.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "../sanitized.h"
#include "../vision_manifest.h"
#include "generation_util.h"
#include "media/decode.h"
#include "native/picture_file.h"
#include "native/prompt_cache.h"
#include "saved_state_util.h"

namespace sluice::test {
namespace {

using nlohmann::json;

struct Seeing : Opened {
  std::unique_ptr<native::PictureFile> pictures;
  Seeing() = default;
  Seeing(Seeing&&) = default;
  Seeing& operator=(Seeing&&) = default;
  ~Seeing() { pictures.reset(); }  // before the model
};

std::string in_vision(const json& name) {
  return shared_folder("vision") + "/" + name.get<std::string>();
}

native::ModelHeader header_of(const json& name) {
  auto header = native::read_header(in_vision(name), {});
  EXPECT_TRUE(header.ok()) << header.status().message();
  return header.ok() ? std::move(*header) : native::ModelHeader();
}

Status open(const json& family, session::EngineOptions options, Seeing* out) {
  native::ModelHeader model = header_of(family["model"]);
  auto pictures = native::PictureFile::open(header_of(family["mmproj"]), model.header);
  if (!pictures.ok()) return pictures.status();
  SLUICE_RETURN_IF_ERROR((*pictures)->adapt(&options));
  auto opened = native::Model::open(std::move(model), options);
  if (!opened.ok()) return opened.status();
  out->pictures = std::move(*pictures);
  out->model = std::move(*opened);
  out->pictures->attach(*out->model);
  auto session = session::Session::create(out->model->engine().context());
  if (!session.ok()) return session.status();
  out->session = std::move(*session);
  return {};
}

std::vector<media::Image> images_of(const json& entry) {
  std::vector<media::Image> out;
  for (const json& name : entry["media"]) {
    std::ifstream in(in_vision(name), std::ios::binary);
    const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(in), {}};
    media::DecodeOptions options;
    options.mode = media::DecodeMode::kReference;
    Result<media::Image> image = media::decode(bytes, options);
    EXPECT_TRUE(image.ok()) << image.status().message();
    if (image.ok()) out.push_back(std::move(*image));
  }
  return out;
}

bool usable(const json& entry) {
  if (has_sound(entry)) return false;
  return std::all_of(entry["media"].begin(), entry["media"].end(),
                     [](const json& m) { return m.get<std::string>().ends_with(".png"); });
}

session::EngineOptions options_for(const json& entry) {
  session::EngineOptions options;
  int32_t n_tokens = 0;
  for (const json& chunk : entry["chunks"]) {
    n_tokens += chunk["type"] == "text" ? static_cast<int32_t>(chunk["tokens"].size())
                                        : chunk["n_tokens"].get<int32_t>();
  }
  options.n_ctx = 2 * n_tokens + 64;
  return options;
}

// The tokens of a prompt with pictures.
Result<std::vector<session::Token>> read(Seeing& seeing, const std::string& prompt,
                                         std::vector<media::Image> images) {
  SLUICE_RETURN_IF_ERROR(seeing.pictures->end());
  for (media::Image& image : images) {
    SLUICE_RETURN_IF_ERROR(seeing.pictures->add_pixels(
        {image.row(0), static_cast<size_t>(image.size())}, image.width, image.height));
  }
  return seeing.pictures->layout(prompt, {});
}

generate::Options greedy_options(size_t n) {
  generate::Options options;
  options.sampling.temperature = 0;
  options.max_tokens = static_cast<int64_t>(n);
  options.ignore_eos = true;
  return options;
}

// Reads a prompt, encodes what the session does not hold, and generates.
Answer see(Seeing& seeing, const std::string& prompt, std::vector<media::Image> images, size_t n,
           const std::function<bool()>& cancelled = nullptr, bool reuse = true) {
  Answer failed;
  auto tokens = read(seeing, prompt, std::move(images));
  failed.status = tokens.status();
  if (!tokens.ok()) return failed;
  generate::Options options = greedy_options(n);
  options.reuse_prefix = reuse;
  failed.status = seeing.pictures->encode(*seeing.session, *tokens, &options, cancelled);
  if (!failed.status.ok()) return failed;
  Answer out = answer(seeing, *tokens, options);
  const Status ended = seeing.pictures->end();
  if (out.status.ok()) out.status = ended;
  return out;
}

json manifest() {
  if (shared_folder("vision").empty()) return json::array();
  std::ifstream in(shared_folder("vision") + "/manifest.json");
  return json::parse(in);
}

TEST(Pictures, PromptsGiveTheReferencesTokens) {
  size_t n = 0;
  for (const json& family : manifest()) {
    for (const json& entry : family["cases"]) {
      if (!usable(entry)) continue;
      SCOPED_TRACE(family["name"].get<std::string>() + " " + entry["name"].get<std::string>());
      Seeing seeing;
      const Status opened = open(family, options_for(entry), &seeing);
      ASSERT_TRUE(opened.ok()) << opened.message();
      const auto greedy = entry["greedy"].get<std::vector<int32_t>>();
      const Answer all = see(seeing, entry["prompt"], images_of(entry), greedy.size());
      ASSERT_TRUE(all.status.ok()) << all.status.message();
      EXPECT_EQ(all.tokens(), greedy);
      ++n;
      if (kSanitized) break;
    }
  }
  if (manifest().empty()) GTEST_SKIP() << "no ../shared/fixtures/vision";
  EXPECT_GT(n, 20u);
}

// The model lends the encoder's memory and gets it back.
TEST(Pictures, ASmallBudgetGivesTheSameTokens) {
  for (const json& family : manifest()) {
    const json& entry = family["cases"][0];
    if (!usable(entry)) continue;
    SCOPED_TRACE(family["name"].get<std::string>());
    session::EngineOptions options = options_for(entry);
    options.n_threads = 2;
    Seeing whole;
    ASSERT_TRUE(open(family, options, &whole).ok());
    const std::string prompt = entry["prompt"];
    std::vector<media::Image> images = images_of(entry);
    const Answer wanted = see(whole, prompt, images_of(entry), 8);
    ASSERT_TRUE(wanted.status.ok()) << wanted.status.message();
    // The smallest budget of the text alone is too small for its pictures; the error names one.
    native::ModelHeader header = header_of(family["model"]);
    ASSERT_TRUE(whole.pictures->adapt(&options).ok());
    options.memory_budget = 1;
    const auto inspected = session::inspect(header.header, options);
    ASSERT_FALSE(inspected.ok());
    uint64_t budget = smallest_budget(in_vision(family["model"]), options);
    Answer small;
    for (int attempt = 0; attempt < 8; ++attempt) {
      options.memory_budget = budget;
      Seeing seeing;
      ASSERT_TRUE(open(family, options, &seeing).ok());
      small = see(seeing, prompt, images_of(entry), 8);
      if (small.status.code() != Code::kBudgetTooSmall) break;
      EXPECT_EQ(seeing.model->engine().plan().bytes.reserve, 0u);
      const auto needed = seeing.pictures->pictures().bytes_for(images[0].width, images[0].height);
      ASSERT_TRUE(needed.ok());
      budget += attempt == 0 ? *needed : *needed / 4;
    }
    ASSERT_TRUE(small.status.ok()) << small.status.message();
    EXPECT_EQ(small.tokens(), wanted.tokens());
    if (kSanitized) break;
  }
}

// A second turn finds the picture in the session, and so does another picture behind it.
TEST(Pictures, TurnsReuseWhatTheSessionHolds) {
  for (const json& family : manifest()) {
    const json& entry = family["cases"][0];
    if (!usable(entry)) continue;
    SCOPED_TRACE(family["name"].get<std::string>());
    Seeing seeing;
    ASSERT_TRUE(open(family, options_for(entry), &seeing).ok());
    const std::string first = entry["prompt"];
    const Answer one = see(seeing, first, images_of(entry), 4);
    ASSERT_TRUE(one.status.ok()) << one.status.message();
    const std::string second = first + "and what";
    const Answer two = see(seeing, second, images_of(entry), 4);
    ASSERT_TRUE(two.status.ok()) << two.status.message();
    // States of recurrent layers are copied every 64 positions.
    static const std::set<std::string> recurrent = {"lfm2", "qwen35", "qwen3next"};
    if (!recurrent.contains(family["arch"])) {
      EXPECT_GT(two.counts.cached, one.counts.prompt / 2);
    }
    Seeing fresh;
    ASSERT_TRUE(open(family, options_for(entry), &fresh).ok());
    const Answer anew = see(fresh, second, images_of(entry), 4);
    EXPECT_EQ(anew.counts.cached, 0);
    EXPECT_EQ(two.tokens(), anew.tokens());
    // Without reuse, all is computed again.
    const Answer again = see(seeing, second, images_of(entry), 4, nullptr, /*reuse=*/false);
    ASSERT_TRUE(again.status.ok()) << again.status.message();
    EXPECT_EQ(again.counts.cached, 0);
    EXPECT_EQ(again.tokens(), anew.tokens());
    // Another picture of the same size is not taken for the first.
    std::vector<media::Image> other = images_of(entry);
    other[0].row(0)[0] ^= 0x80;
    other[0].row(other[0].height / 2)[3 * (other[0].width / 2)] ^= 0xff;
    const Answer changed = see(seeing, second, std::move(other), 4);
    ASSERT_TRUE(changed.status.ok());
    EXPECT_LT(changed.counts.cached, one.counts.prompt - 2);
    if (kSanitized) break;
  }
}

// Encoded pictures serve the prompt in any session; one that holds none of them says so.
TEST(Pictures, SessionsShareWhatIsEncoded) {
  for (const json& family : manifest()) {
    const json& entry = family["cases"][0];
    if (!usable(entry)) continue;
    SCOPED_TRACE(family["name"].get<std::string>());
    session::EngineOptions options = options_for(entry);
    options.n_sessions = 2;
    Seeing seeing;
    ASSERT_TRUE(open(family, options, &seeing).ok());
    auto second = session::Session::create(seeing.model->engine().context());
    ASSERT_TRUE(second.ok());
    const auto greedy = entry["greedy"].get<std::vector<int32_t>>();
    const auto prompt = read(seeing, entry["prompt"], images_of(entry));
    ASSERT_TRUE(prompt.ok());
    int steps = 0;
    for (int i = 0; i < 2; ++i) {
      generate::Options how = greedy_options(4);
      const int before = steps;
      const Status encoded = seeing.pictures->encode(*seeing.session, *prompt, &how, [&steps] {
        ++steps;
        return false;
      });
      ASSERT_TRUE(encoded.ok()) << encoded.message();
      if (i == 1) {
        EXPECT_LE(steps - before, 2);
      }
      const Answer one = answer(seeing, *prompt, how);
      ASSERT_TRUE(one.status.ok()) << one.status.message();
      EXPECT_EQ(one.counts.cached, 0);
      EXPECT_EQ(one.tokens(), std::vector(greedy.begin(), greedy.begin() + 4));
      std::swap(seeing.session, *second);
    }
    ASSERT_TRUE(seeing.pictures->end().ok());
    // The first session holds the pictures, an empty one does not.
    const Answer again = answer(seeing, *prompt, greedy_options(4));
    static const std::set<std::string> recurrent = {"lfm2", "qwen35", "qwen3next"};
    if (!recurrent.contains(family["arch"])) {
      EXPECT_EQ(again.tokens(), std::vector(greedy.begin(), greedy.begin() + 4));
    }
    seeing.session->clear();
    EXPECT_EQ(answer(seeing, *prompt, greedy_options(4)).status.code(), Code::kMediaMissing);
    if (kSanitized) break;
  }
}

// Draft tokens behind pictures change nothing, even if they are a picture's.
class TokensOfTheText final : public generate::DraftSource {
 public:
  [[nodiscard]] size_t propose(std::span<const session::Token> text,
                               std::span<session::Token> out) override {
    for (session::Token& token : out) token = text[at_++ % text.size()];
    return out.size();
  }

 private:
  size_t at_ = 0;
};

TEST(Pictures, DraftsChangeNothing) {
  for (const json& family : manifest()) {
    const json& entry = family["cases"][0];
    if (!usable(entry)) continue;
    SCOPED_TRACE(family["name"].get<std::string>());
    session::EngineOptions options = options_for(entry);
    options.draft_max = 4;
    Seeing seeing;
    ASSERT_TRUE(open(family, options, &seeing).ok());
    const auto prompt = read(seeing, entry["prompt"], images_of(entry));
    ASSERT_TRUE(prompt.ok());
    TokensOfTheText drafts;
    const auto greedy = entry["greedy"].get<std::vector<int32_t>>();
    generate::Options how = greedy_options(greedy.size());
    how.drafts.source = &drafts;
    ASSERT_TRUE(seeing.pictures->encode(*seeing.session, *prompt, &how).ok());
    const Answer drafted = answer(seeing, *prompt, how);
    ASSERT_TRUE(drafted.status.ok()) << drafted.status.message();
    EXPECT_EQ(drafted.tokens(), greedy);
    const bool recurrent = seeing.model->engine().plan().kv.shape.recurrent();
    EXPECT_EQ(drafted.counts.drafted > 0, !recurrent);
    if (kSanitized) break;
  }
}

// Memory is lent before a file is decoded: this one has no pixels behind its header.
TEST(Pictures, FilesAreDecodedWithinTheBudget) {
  const json all = manifest();
  if (all.empty()) GTEST_SKIP() << "no ../shared/fixtures/vision";
  const json& family = all[0];
  std::vector<uint8_t> bmp(54);
  const auto put = [&bmp](size_t at, std::initializer_list<uint8_t> bytes) {
    std::copy(bytes.begin(), bytes.end(), bmp.begin() + static_cast<std::ptrdiff_t>(at));
  };
  put(0, {'B', 'M'});
  put(10, {54, 0, 0, 0, 40});
  put(18, {0xb8, 0x0b, 0, 0, 0xb8, 0x0b, 0, 0, 1, 0, 24});  // 3000 x 3000
  session::EngineOptions options = options_for(family["cases"][0]);
  Seeing unlimited, small;
  ASSERT_TRUE(open(family, options, &unlimited).ok());
  EXPECT_EQ(unlimited.pictures->add_file(bmp, {}).code(), Code::kInvalidArgument);
  options.memory_budget = 16u << 20;
  ASSERT_TRUE(open(family, options, &small).ok());
  EXPECT_EQ(small.pictures->add_file(bmp, {}).code(), Code::kBudgetTooSmall);
}

TEST(Pictures, WrongPromptsAreErrors) {
  const json all = manifest();
  if (all.empty()) GTEST_SKIP() << "no ../shared/fixtures/vision";
  const json& family = all[0];
  const json& entry = family["cases"][0];
  Seeing seeing;
  ASSERT_TRUE(open(family, options_for(entry), &seeing).ok());
  const auto code = [&](const std::string& prompt) {
    return see(seeing, prompt, images_of(entry), 1).status.code();
  };
  EXPECT_EQ(code("no picture"), Code::kInvalidArgument);
  EXPECT_EQ(code("<__media__> and <__media__> what"), Code::kInvalidArgument);
  EXPECT_EQ(code("ends with <__media__>"), Code::kOk);  // the family writes a mark behind it
  int asked = 0;
  const Answer cancelled =
      see(seeing, entry["prompt"], images_of(entry), 1, [&asked] { return ++asked > 3; });
  EXPECT_EQ(cancelled.status.code(), Code::kAborted);
  EXPECT_TRUE(see(seeing, entry["prompt"], images_of(entry), 1).status.ok());
  // A projector of another width belongs to another model.
  for (const json& other : all) {
    if (other["n_embd"].get<int>() % family["n_embd"].get<int>() == 0) continue;
    const auto refused =
        native::PictureFile::open(header_of(other["mmproj"]), header_of(family["model"]).header);
    EXPECT_EQ(refused.status().code(), Code::kBadShape) << other["name"];
  }
  // Limits that the projector cannot have are known before a picture is.
  const auto limited = [&](const json& of, const media::TokenLimits& limits) {
    const native::ModelHeader model = header_of(of["model"]);
    return native::PictureFile::open(header_of(of["mmproj"]), model.header, limits).status().code();
  };
  EXPECT_EQ(limited(family, {5, 6}), Code::kOk);
  EXPECT_EQ(limited(family, {6, 5}), Code::kInvalidArgument);
  for (const json& other : all) {
    if (other["name"] != "llava") continue;
    EXPECT_EQ(limited(other, {5, 6}), Code::kNotSupported);
  }
}

// Saved pictures must not be taken for those of another projector.
TEST(Pictures, ProjectorsAreToldApart) {
  const json all = manifest();
  if (all.empty()) GTEST_SKIP() << "no ../shared/fixtures/vision";
  std::ifstream in(in_vision(all[0]["mmproj"]), std::ios::binary);
  std::string file{std::istreambuf_iterator<char>(in), {}};
  const auto hash = [&file] {
    gguf::Header header;
    const auto parsed = gguf::parse_header(
        {reinterpret_cast<const uint8_t*>(file.data()), file.size()}, file.size(), &header);
    EXPECT_TRUE(parsed.ok() && parsed->done);
    return multimodal::hash_of(header);
  };
  const uint64_t own = hash();
  EXPECT_EQ(hash(), own);
  for (const std::string text : {"random-", "clip.vision.image_mean", "v.blk.0.ln1.weight"}) {
    const size_t at = file.find(text);
    ASSERT_NE(at, std::string::npos) << text;
    char& last = file[at + text.size() - 1];
    last ^= 1;
    EXPECT_NE(hash(), own) << text;
    last ^= 1;
  }
}

// A projector's file with one bit of this tensor changed; the caller removes it.
std::string with_other_weights(const std::string& path, const gguf::Tensor& tensor) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  bytes[tensor.offset] = static_cast<char>(bytes[tensor.offset] ^ 1);
  const std::string out = testing::TempDir() + "other-" + std::to_string(getpid()) + ".mmproj.gguf";
  std::ofstream(out, std::ios::binary) << bytes;
  return out;
}

// A state with pictures, and an entry of the prompt cache, belong to the projector's weights; text
// does not.
TEST(Pictures, SavedStatesBelongToTheProjectorsWeights) {
  const json all = manifest();
  if (all.empty()) GTEST_SKIP() << "no ../shared/fixtures/vision";
  const json& family = all[0];
  const json& entry = family["cases"][0];
  const std::string directory = testing::TempDir() + "cache-" + std::to_string(getpid());
  const auto cached = [&](Seeing& seeing, const std::vector<session::Token>& prompt) {
    auto cache = native::PromptCache::open(directory, 1 << 20, *seeing.model);
    EXPECT_TRUE(cache.ok()) << cache.status().message();
    seeing.session->clear();
    const auto found = cache->restore(*seeing.session, prompt);
    EXPECT_TRUE(found.ok()) << found.status().message();
    return found.ok() ? *found : -1;
  };
  Seeing own, same;
  ASSERT_TRUE(open(family, options_for(entry), &own).ok());
  ASSERT_TRUE(open(family, options_for(entry), &same).ok());
  const auto spoken = own.model->engine().tokenizer().encode("what is it that it shows", {});
  ASSERT_TRUE(answer(own, spoken, greedy_options(1)).status.ok());
  const std::vector<uint8_t> text = save(own);
  ASSERT_TRUE(see(own, entry["prompt"], images_of(entry), 1).status.ok());
  const std::vector<uint8_t> state = save(own);
  const std::vector<session::Token> prompt(own.session->tokens().begin(),
                                           own.session->tokens().end());
  auto cache = native::PromptCache::open(directory, 1 << 20, *own.model);
  ASSERT_TRUE(cache.ok());
  ASSERT_TRUE(cache->save(*own.session).ok());
  EXPECT_TRUE(restore(same, state).ok());
  EXPECT_EQ(cached(same, prompt), static_cast<int32_t>(prompt.size()));
  const native::ModelHeader projector = header_of(family["mmproj"]);
  const std::vector<gguf::Tensor>& tensors = projector.header.tensors;
  for (const size_t i : {size_t{0}, tensors.size() / 2, tensors.size() - 1}) {
    json other = family;
    other["mmproj"] =
        std::filesystem::relative(with_other_weights(in_vision(family["mmproj"]), tensors[i]),
                                  in_vision(""))
            .string();
    {
      Seeing changed;
      ASSERT_TRUE(open(other, options_for(entry), &changed).ok());
      const Status refused = restore(changed, state);
      EXPECT_EQ(refused.code(), Code::kCorrupt) << tensors[i].name;
      EXPECT_NE(refused.message().find("weights of the projectors"), std::string::npos)
          << refused.message();
      EXPECT_EQ(cached(changed, prompt), 0) << tensors[i].name;
      EXPECT_TRUE(restore(changed, text).ok()) << tensors[i].name;
    }
    std::filesystem::remove(in_vision(other["mmproj"]));
  }
  std::filesystem::remove_all(directory);
}

// Before an eviction, tokens are the reference's; behind one, those of the smallest budget.
TEST(Pictures, AreEvictedLikeText) {
  for (const json& family : manifest()) {
    const json& entry = family["cases"][0];
    if (!usable(entry)) continue;
    for (const bool heavy : {false, true}) {
      SCOPED_TRACE(family["name"].get<std::string>() + (heavy ? " heavy-hitter" : " window"));
      const bool joined = entry["chunks"].dump().find("\"non_causal\":true") != std::string::npos;
      session::EngineOptions options = options_for(entry);
      options.kv_policy.heavy_hitter = heavy;
      options.kv_policy.window = !heavy;
      options.kv_policy.capacity = std::max(3 * options.n_ctx, 2560);
      Seeing seeing;
      if (const Status opened = open(family, options, &seeing); !opened.ok()) {
        EXPECT_NE(opened.message().find("is not supported here"), std::string::npos)
            << opened.message();
        continue;
      }
      const auto greedy = entry["greedy"].get<std::vector<int32_t>>();
      const Answer all = see(seeing, entry["prompt"], images_of(entry), greedy.size());
      if (heavy && joined) {
        EXPECT_EQ(all.status.code(), Code::kInvalidArgument) << all.status.message();
        continue;
      }
      ASSERT_TRUE(all.status.ok()) << all.status.message();
      EXPECT_EQ(all.tokens(), greedy);
      if (joined) continue;  // needs a large cache for the largest picture
      options.kv_policy.capacity = 128;
      options.n_ctx = 4096;
      Seeing small;
      ASSERT_TRUE(open(family, options, &small).ok());
      std::string prompt = entry["prompt"];
      for (int i = 0; i < 40; ++i) prompt += " and what is there";
      const Answer wanted = see(small, prompt, images_of(entry), 6);
      ASSERT_TRUE(wanted.status.ok()) << wanted.status.message();
      EXPECT_GT(small.session->position(), 128);
      options.n_batch = 5;
      options.n_threads = 1;
      Seeing other;
      ASSERT_TRUE(open(family, options, &other).ok());
      EXPECT_EQ(see(other, prompt, images_of(entry), 6).tokens(), wanted.tokens());
    }
    if (kSanitized) break;
  }
}

}  // namespace
}  // namespace sluice::test
