// What a header must have before a program is built from it, beyond tests/data/wrong-files.json.
// Unsupported layers are errors that name them, and text from the file is made harmless.
#include "model/program.h"

#include <gtest/gtest.h>

#include "gguf_builder.h"

namespace sluice::model {
namespace {

using test::GgufBuilder;

// A llama of two layers with fused QKV: width 8, two heads of 4, and key/value heads by layer.
std::vector<uint8_t> fused(const std::vector<uint32_t>& kv_heads, const char* name = "tiny") {
  GgufBuilder b;
  b.string("general.architecture", "llama").string("general.name", name);
  b.number("llama.context_length", uint32_t{64}).number("llama.embedding_length", uint32_t{8});
  b.number("llama.block_count", uint32_t{2}).number("llama.feed_forward_length", uint32_t{16});
  b.number("llama.attention.head_count", uint32_t{2});
  b.numbers("llama.attention.head_count_kv", kv_heads);
  b.f32("token_embd.weight", {8, 32}).f32("output_norm.weight", {8});
  for (size_t i = 0; i < 2; i++) {
    const std::string at = "blk." + std::to_string(i) + ".";
    b.f32(at + "attn_norm.weight", {8}).f32(at + "ffn_norm.weight", {8});
    b.f32(at + "attn_qkv.weight", {8, 8 + 8 * kv_heads[i]}).f32(at + "attn_output.weight", {8, 8});
    b.f32(at + "ffn_gate.weight", {8, 16}).f32(at + "ffn_up.weight", {8, 16});
    b.f32(at + "ffn_down.weight", {16, 8});
  }
  return b.build();
}

Result<Program> program_of(const std::vector<uint8_t>& file) {
  gguf::Header header;
  const auto parsed = gguf::parse_header(file, file.size(), &header);
  if (!parsed.ok()) return parsed.status();
  return build_program(header);
}

TEST(Program, ALayerWithoutHeadsIsAnError) {
  EXPECT_TRUE(program_of(fused({1, 2})).ok());
  const Status status = program_of(fused({1, 0})).status();
  EXPECT_STREQ(code_name(status.code()), "BAD_HEADER");
  for (const char* word : {"head_count_kv", "layer 1", "llama"}) {
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  }
}

bool has_controls(std::string_view text) {
  for (size_t i = 0; i < text.size(); i++) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x20 || byte == 0x7f || text.substr(i, 2) == "\xC2\x9B") return true;
  }
  return false;
}

TEST(Program, NoEscapeReachesTheTerminal) {
  const char* hostile =
      "a\x1b[31m\r\n\x07\x7f\xC2\x9B"
      "31mé";
  const auto file = GgufBuilder().string("general.architecture", hostile).f32("x", {8}).build();
  const Status status = program_of(file).status();
  EXPECT_STREQ(code_name(status.code()), "UNSUPPORTED_ARCHITECTURE");
  EXPECT_FALSE(has_controls(status.message())) << status.message();
  EXPECT_NE(status.message().find("a?[31m"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("31mé"), std::string::npos) << status.message();

  const auto program = program_of(fused({1, 1}, hostile));
  ASSERT_TRUE(program.ok()) << program.status().message();
  EXPECT_FALSE(has_controls(program->hp.name));
  EXPECT_FALSE(has_controls(error(Code::kIo, "%s", hostile).message()));
}

}  // namespace
}  // namespace sluice::model
