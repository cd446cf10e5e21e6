// Every function of sluice.h with null, wrong and late arguments: an error with a message, never a
// crash, and the handles stay usable. The last test fails for a function that is in the header but
// not in this list.
#include "misuse.h"

#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "../paths.h"

namespace sluice::test {
namespace {

std::vector<Misuse> all() {
  std::vector<Misuse> list;
  for (const auto& part : {wrong_loading(), wrong_questions(), wrong_texts(), wrong_sessions(),
                           wrong_answers(), wrong_chats(), wrong_steps(), wrong_embeddings()}) {
    list.insert(list.end(), part.begin(), part.end());
  }
  return list;
}

TEST(ApiMisuse, EveryWrongCallIsAnErrorWithAMessage) {
  Rig rig;
  const Greedy greedy(6);
  const std::string expected = answer(rig.session, kPrompt, greedy.options).text;
  for (const Misuse& misuse : all()) {
    SCOPED_TRACE(std::string(misuse.function) + ": " + misuse.what);
    const sluice_status status = misuse.call(rig);
    EXPECT_EQ(status, misuse.expected) << sluice_status_name(status);
    EXPECT_TRUE(status == SLUICE_OK || sluice_last_error()[0] != '\0');
    EXPECT_EQ(rig.made_engine, nullptr);
    EXPECT_EQ(rig.made_session, nullptr);
    EXPECT_EQ(rig.made_sampler, nullptr);
    EXPECT_EQ(rig.made_chat, nullptr);
  }
  EXPECT_EQ(answer(rig.session, kPrompt, greedy.options).text, expected);
}

// Calls that compute or change state, made on an engine from inside its callback.
TEST(ApiMisuse, FromACallbackIsAnError) {
  Rig rig;
  const Session other = create(rig.engine);
  bool called = false;
  const Answer told =
      answer(rig.session, kPrompt, Greedy(2).options, [&](const sluice_token_event&) {
        called = true;
        const std::function<sluice_status()> calls[] = {
            [&] { return sluice_engine_set_memory_budget(rig.engine.get(), 0); },
            [&] { return sluice_session_create(rig.engine.get(), &rig.made_session); },
            [&] { return sluice_session_fork(other.get(), &rig.made_session); },
            [&] { return sluice_session_free(rig.session.get()); },
            [&] { return sluice_session_tokens(other.get(), nullptr, 0, &rig.count); },
            [&] { return sluice_session_rewind(rig.session.get(), 0, nullptr); },
            [&] { return sluice_session_state_bytes(other.get(), &rig.bytes); },
            [&] { return sluice_session_save(other.get(), 0, rig.text.data(), 1); },
            [&] { return sluice_session_restore(other.get(), rig.text.data(), 1); },
            [&] { return sluice_generate(other.get(), "a", 1, nullptr, nullptr); },
            [&] { return sluice_forward(other.get(), rig.tokens.data(), 1, SLUICE_LAST_LOGITS); },
            [&] { return sluice_logits(other.get(), 0, nullptr, 0, &rig.count); },
            [&] {
              const char* const text = "a";
              return sluice_embed(other.get(), &text, 1, nullptr, nullptr, 0, &rig.count);
            }};
        for (const auto& call : calls) EXPECT_EQ(call(), SLUICE_INVALID_ARGUMENT);
        sluice_info info = {};
        info.size = sizeof info;
        expect_ok(sluice_engine_info(rig.engine.get(), &info));  // queries are allowed
        auto request = defaults(sluice_chat_options_default);
        request.messages = kMessages;
        expect_ok(sluice_chat_create(rig.engine.get(), &request, &rig.made_chat));
        sluice_chat_free(rig.made_chat);
        return true;
      });
  EXPECT_TRUE(called);
  EXPECT_EQ(told.result.generated_tokens, 2);
}

TEST(ApiMisuse, CoversEveryFunction) {
  std::ifstream file(source_dir() + "/src/api/sluice.h");
  const std::string header{std::istreambuf_iterator<char>(file), {}};
  std::set<std::string> functions{"sluice_status_name", "sluice_last_error", "sluice_version"};
  for (const Misuse& misuse : all()) functions.insert(misuse.function);
  const std::regex declared("SLUICE_API[^(;]*?(sluice_\\w+)\\(");
  size_t n = 0;
  for (std::sregex_iterator at(header.begin(), header.end(), declared), end; at != end; ++at, ++n) {
    EXPECT_TRUE(functions.count((*at)[1])) << (*at)[1] << " has no wrong call in the list";
  }
  EXPECT_EQ(n, functions.size());
}

}  // namespace
}  // namespace sluice::test
