// Vision encoders compared with llama.cpp's embeddings, for every family of
// ../shared/fixtures/vision, and with themselves at the smallest budget, with other threads and
// kernels.
#include "allocations.h"
#include "vision_encoder_util.h"

namespace sluice::test {
namespace {

using nlohmann::json;

std::vector<float> stored_embeddings(const json& entry) {
  const std::vector<uint8_t> bytes = read_bytes(vision_folder() / entry["embd"].get<std::string>());
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  return out;
}

TEST(VisionEncoder, EveryCaseHasTheReferencesEmbeddings) {
  size_t cases = 0, with_sound = 0;
  for (const json& family : vision_manifest()) {
    const auto file = parse_file(vision_folder() / family["mmproj"].get<std::string>());
    const auto encoder = open_encoder(*file);
    ASSERT_NE(encoder, nullptr) << family["name"];
    for (const json& entry : family["cases"]) {
      if (has_sound(entry)) {
        ++with_sound;
        continue;
      }
      SCOPED_TRACE(family["name"].get<std::string>() + " " + entry["name"].get<std::string>());
      const auto got = encode_all(*encoder, inputs_of(encoder->projector(), entry));
      EXPECT_LT(relative_error(got, stored_embeddings(entry)), 1e-9);
      ++cases;
    }
  }
  EXPECT_EQ(cases, has_all_vision_fixtures() ? 111u : 7u);
  EXPECT_EQ(with_sound, has_all_vision_fixtures() ? 3u : 0u);
}

TEST(VisionEncoder, EveryInstructionSetHasTheReferencesEmbeddings) {
  const std::vector<std::string> some = {"qwen3vl", "gemma4v", "llava"};
  size_t tables = 0, families = 0;
  for (const char* const* name = kernels::available(); *name != nullptr; ++name, ++tables) {
    for (const json& family : vision_manifest()) {
      const json& entry = family["cases"][0];
      if (std::find(some.begin(), some.end(), family["name"]) == some.end()) continue;
      ++families;
      SCOPED_TRACE(std::string(*name) + " " + family["name"].get<std::string>());
      const auto file = parse_file(vision_folder() / family["mmproj"].get<std::string>());
      const auto encoder = open_encoder(*file, {.kernels = *name});
      ASSERT_NE(encoder, nullptr);
      const auto got = encode_all(*encoder, inputs_of(encoder->projector(), entry));
      EXPECT_LT(relative_error(got, stored_embeddings(entry)), 1e-9);
    }
  }
  EXPECT_GT(tables, 0u);
  EXPECT_EQ(families, tables * some.size());
}

// The smallest budget that encodes all of these inputs.
uint64_t smallest_budget(vision::Encoder& encoder, const std::vector<media::Image>& inputs) {
  uint64_t out = 0;
  for (const media::Image& input : inputs) {
    auto plan = encoder.plan_for(input.width, input.height, 0);
    EXPECT_TRUE(plan.ok());
    if (plan.ok()) out = std::max(out, plan->minimum);
  }
  return out;
}

TEST(VisionEncoder, BitsDependNeitherOnTheBudgetNorOnThreads) {
  size_t streamed = 0, refusals = 0;
  for (const json& family : vision_manifest()) {
    SCOPED_TRACE(family["name"].get<std::string>());
    const json& entry = family["cases"][0];
    if (has_sound(entry)) continue;
    const auto file = parse_file(vision_folder() / family["mmproj"].get<std::string>());
    const auto encoder = open_encoder(*file, {}, 1);
    ASSERT_NE(encoder, nullptr);
    const auto inputs = inputs_of(encoder->projector(), entry);
    const std::vector<float> want = encode_all(*encoder, inputs);
    const uint64_t least = smallest_budget(encoder->encoder(), inputs);
    for (const uint64_t more : {uint64_t{0}, uint64_t{20'000}, uint64_t{60'000}}) {
      const auto small = open_encoder(*file, {.memory_budget = least + more}, 1);
      ASSERT_NE(small, nullptr);
      // Twice with one encoder: the second time its pinned weights are there.
      for (int run = 0; run < 2; ++run) EXPECT_EQ(encode_all(*small, inputs), want);
      EXPECT_LE(small->encoder().plan().total(), least + more);
      if (more == 0 && small->encoder().plan().weights.n_slots > 0) ++streamed;
    }
    EXPECT_EQ(encode_all(*open_encoder(*file, {}, 3), inputs), want);
    for (const media::Image& input : inputs) {
      auto refused = encoder->encoder().plan_for(input.width, input.height, least - 1);
      if (refused.ok()) continue;  // a smaller one of several
      EXPECT_EQ(refused.status().code(), Code::kBudgetTooSmall);
      EXPECT_NE(refused.status().message().find(std::to_string(least)), std::string::npos);
      ++refusals;
    }
  }
  EXPECT_EQ(streamed, has_all_vision_fixtures() ? 25u : 7u);
  EXPECT_GE(refusals, streamed);
}

// What operator new gives out: the program, lists of units, and the geometry of the picture. Large
// buffers are counted one by one in the plan.
TEST(VisionEncoder, ListsAreInThePlan) {
  if (kSanitized) GTEST_SKIP() << "sanitizers have their own operator new";
  size_t families = 0;
  for (const json& family : vision_manifest()) {
    SCOPED_TRACE(family["name"].get<std::string>());
    const json& entry = family["cases"][0];
    if (has_sound(entry)) continue;
    const auto file = parse_file(vision_folder() / family["mmproj"].get<std::string>());
    const auto inputs = inputs_of(open_encoder(*file)->projector(), entry);
    ThreadPool pool(1);
    for (const bool tight : {false, true}) {
      auto plan =
          open_encoder(*file, {}, 1)->encoder().plan_for(inputs[0].width, inputs[0].height, 0);
      ASSERT_TRUE(plan.ok());
      std::vector<float> out;
      allocations = {.on = true};
      auto encoder = try_encoder(file->header, file->bytes,
                                 {.memory_budget = tight ? plan->minimum : 0, .pool = &pool});
      const Status status = encode_one(**encoder, inputs[0], &out);
      allocations.on = false;
      ASSERT_TRUE(status.ok()) << status.message();
      const vision::EncoderPlan& held = (*encoder)->encoder().plan();
      const uint64_t lists = held.bookkeeping_bytes + held.sizes.geometry_bytes +
                             held.sizes.tiles * sizeof(vision::QueryTile) +
                             held.sizes.key_runs * sizeof(vision::KeyRun);
      EXPECT_LE(allocations.peak, lists + out.size() * sizeof(float));
      EXPECT_GT(allocations.peak, 0u);
    }
    ++families;
  }
  EXPECT_EQ(families, has_all_vision_fixtures() ? 25u : 7u);
}

// One encoder for inputs of changing sizes, in any order.
TEST(VisionEncoder, HistoryDoesNotMatter) {
  const auto file = parse_file(vision_folder() / "qwen2.5vl.mmproj.gguf");
  const auto fresh = open_encoder(*file);
  ASSERT_NE(fresh, nullptr);
  std::vector<media::Image> inputs;
  for (const uint32_t side : {56u, 168u, 84u, 56u}) {
    auto image = media::Image::create(2 * side, side);
    ASSERT_TRUE(image.ok());
    for (uint64_t i = 0; i < image->size(); ++i) image->row(0)[i] = static_cast<uint8_t>(i * 37);
    inputs.push_back(std::move(*image));
  }
  const uint64_t least = smallest_budget(fresh->encoder(), inputs);
  const auto used = open_encoder(*file, {.memory_budget = least});
  for (int round = 0; round < 2; ++round) {
    for (const media::Image& input : inputs) {
      std::vector<float> want, got;
      ASSERT_TRUE(encode_one(*open_encoder(*file), input, &want).ok());
      ASSERT_TRUE(encode_one(*used, input, &got).ok());
      EXPECT_EQ(got, want);
    }
  }
  // A call that was cancelled leaves nothing behind.
  std::vector<float> want, got;
  ASSERT_TRUE(encode_one(*open_encoder(*file), inputs[1], &want).ok());
  got.resize(want.size());
  int steps = 0;
  EXPECT_EQ(used->encode(inputs[1], got, [&] { return ++steps > 40; }).code(), Code::kAborted);
  EXPECT_EQ(steps, 41);
  ASSERT_TRUE(encode_one(*used, inputs[1], &got).ok());
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace sluice::test
