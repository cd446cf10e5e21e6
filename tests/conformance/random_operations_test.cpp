// Random sequences of public calls. Each output is compared with an engine of its own that
// recomputes the whole text with unlimited memory. Conversations continue, rewind and start over.
// There are five of them with memory for three, so they are swapped to files and back, sometimes on
// a full disk. Others are saved. They run alone or three in a batch, which they join, fork and
// leave. Generations are cancelled at random moments; budgets change, also in mid-pass; invalid
// prompts are rejected. KV caches have any type, with and without eviction; output heads are
// clustered; tokens exit early; half of the generations use drafts, right and wrong. Prompts have
// pictures. Whatever came before, tokens and logits are bit-identical to those of the text alone,
// or the call is a typed error after which everything continues. random_sequence.h explains how to
// replay and to run more.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>

#include "../paths.h"
#include "../random_sequence.h"
#include "../sanitized.h"
#include "deep_util.h"
#include "early_exit_util.h"
#include "file_limit_util.h"
#include "file_sink_util.h"
#include "fixtures_util.h"
#include "generate/nextn_draft.h"
#include "generate/scheduler.h"
#include "gguf/early_exit.h"
#include "made_pictures.h"
#include "native/session_swap.h"
#include "nextn_util.h"

namespace sluice::test {
namespace {

using generate::Finish;
using session::Token;
using Tokens = std::vector<Token>;

struct Answer {
  Tokens tokens;
  std::vector<float> logits;  // after the prompt's last token
};

// The reference: one session, cleared before each generation, everything resident, one thread.
class Fresh {
 public:
  Fresh(const std::string& path, int32_t n_ctx, const kv::KvTypes& types,
        const kv::KvPolicy& policy, const session::HeadPolicy& head,
        const session::ExitPolicy& exits) {
    session::EngineOptions options;
    options.approximate.head = head;
    options.approximate.exits = exits;
    options.kv = types;
    options.kv_policy = policy;
    options.n_ctx = n_ctx;
    options.n_threads = 1;
    options.min_batch = MadePictures::kMaxTokens;
    opened_ = open_model(path, options);
  }
  Answer answer(const Tokens& prompt, size_t n, MadePictures& pictures) {
    Answer out;
    opened_.session->clear();
    const Status seen = pictures.see(*opened_.model, *opened_.session, prompt);
    EXPECT_TRUE(seen.ok()) << seen.message();
    if (!seen.ok()) return out;
    Tokens next(prompt.begin() + opened_.session->position(), prompt.end());
    while (true) {
      const Status begun = opened_.session->begin(next);
      EXPECT_TRUE(begun.ok()) << begun.message();
      if (!begun.ok()) return out;
      EXPECT_TRUE(opened_.model->run(*opened_.session).ok());
      const auto logits = opened_.session->logits();
      if (out.logits.empty()) out.logits.assign(logits.begin(), logits.end());
      if (out.tokens.size() == n) return out;
      const auto best = std::max_element(logits.begin(), logits.end());
      out.tokens.push_back(static_cast<Token>(best - logits.begin()));
      if (out.tokens.size() == n) return out;  // the last token may not fit in the context
      next = {out.tokens.back()};
    }
  }

 private:
  Opened opened_;
};

// Drafts frequent tokens, and sometimes nothing.
class RandomDrafts final : public generate::DraftSource {
 public:
  explicit RandomDrafts(uint64_t seed) : random_(seed) {}
  [[nodiscard]] size_t propose(std::span<const Token> text, std::span<Token> out) override {
    for (Token& t : out) t = text[random_() % text.size()];
    return random_() % (out.size() + 1);
  }

 private:
  std::mt19937_64 random_;
};

class Operations {
 public:
  Operations(const std::string& path, int32_t n_ctx, int threads, RandomSequence& sequence)
      : sequence_(sequence),
        random_(sequence.setup()),
        n_ctx_(n_ctx),
        types_(random_types(path)),
        policy_(random_policy(path)),
        head_(random_head(path)),
        exits_(random_exits(path)),
        fresh_(path, n_ctx, types_, policy_, head_, exits_) {
    options_.approximate.head = head_;
    options_.approximate.exits = exits_;
    options_.n_ctx = n_ctx;
    options_.kv = types_;
    options_.kv_policy = policy_;
    options_.n_threads = threads;
    options_.parallel = 3;
    options_.min_batch = MadePictures::kMaxTokens;
    options_.n_checkpoints = static_cast<int32_t>(2 + random_() % 6);
    options_.draft_max = static_cast<int32_t>(random_() % 2 * 9);
    options_.nextn = options_.draft_max > 0 && has_nextn(path, options_);
    min_ = smallest_budget(path, options_);
    options_.memory_budget = budget();
    native::LoadOptions load;
    load.engine = options_;
    auto model = native::Model::open(path, load);
    EXPECT_TRUE(model.ok()) << model.status().message();
    if (!model.ok()) return;
    model_ = std::move(*model);
    auto swap = native::SessionSwap::open(model_->engine().context(), testing::TempDir());
    EXPECT_TRUE(swap.ok()) << swap.status().message();
    if (swap.ok()) swap_ = std::move(*swap);
    for (auto& live : live_) {
      auto place = swap_->create();
      EXPECT_TRUE(place.ok());
      if (place.ok()) live.place = std::move(*place);
    }
    n_vocab_ = static_cast<Token>(model_->engine().program().hp.n_vocab);
    pictures_.emplace(model_->engine().context());
    sees_ = MadePictures::taken_by(model_->engine().context());
  }

  [[nodiscard]] bool ready() const { return model_ != nullptr; }

  void run() {
    sequence_.run([this](const std::mt19937_64& random) {
      random_ = random;
      perform(random_() % 19);
    });
  }

 private:
  void perform(uint64_t kind) {
    static constexpr const char* kNames[] = {"move budget", "save",   "restore",
                                             "refuse",      "rewind", "damage"};
    sequence_.note(kind < 7    ? "generate"
                   : kind < 9  ? "cancel"
                   : kind < 16 ? kNames[std::max<uint64_t>(kind, 10) - 10]
                               : "generate in a batch");
    Live& live = live_[random_() % std::size(live_)];
    if (kind != 11 && kind < 16) enter(live);
    if (sequence_.failed()) return;
    if (kind < 7) {
      answer(live, /*cut=*/false);
    } else if (kind < 9) {
      answer(live, /*cut=*/true);
    } else if (kind < 11) {
      move_budget();
    } else if (kind == 11) {
      save(live);
    } else if (kind == 12) {
      restore(live);
    } else if (kind == 13) {
      refuse(live);
    } else if (kind == 14) {
      rewind(live);
    } else if (kind == 15) {
      damage(live);
    } else {
      together();
    }
  }

  struct Live {
    std::unique_ptr<native::Conversation> place;
    session::Session* session = nullptr;  // while it is in memory
  };
  struct Saved {
    std::vector<uint8_t> bytes;
    Tokens tokens;
  };

  // Half of the time f16, which is also for models that support nothing else.
  kv::KvTypes random_types(const std::string& path) {
    kv::KvTypes types;
    if (random_() % 2 == 0) return types;
    types.k = static_cast<kv::KvType>(random_() % 4);
    types.v = random_() % 2 == 0 ? types.k : static_cast<kv::KvType>(random_() % 4);
    auto header = native::read_header(path, {});
    if (!header.ok()) return {};
    session::EngineOptions options;
    options.kv = types;
    return session::inspect(header->header, options).ok() ? types : kv::KvTypes();
  }

  // Half of the time a cache with eviction that is shorter than the texts, if the model supports
  // it.
  kv::KvPolicy random_policy(const std::string& path) {
    kv::KvPolicy policy;
    policy.sinks = static_cast<int32_t>(random_() % 7);
    policy.capacity = static_cast<int32_t>(128 + random_() % 385);
    const bool evicts = random_() % 2 == 0 && policy.capacity + kv::kMinPositions < n_ctx_;
    policy.heavy_hitter = evicts && random_() % 2 == 0;
    policy.window = evicts && !policy.heavy_hitter;
    auto header = native::read_header(path, {});
    if (!header.ok()) return {};
    session::EngineOptions options;
    options.kv = types_;
    options.kv_policy = policy;
    return session::inspect(header->header, options).ok() ? policy : kv::KvPolicy();
  }

  // A part of the output head, if it is clustered.
  session::HeadPolicy random_head(const std::string& path) {
    session::HeadPolicy head;
    head.kind = static_cast<session::HeadPolicy::Kind>(random_() % 4);
    head.clusters = static_cast<int32_t>(1 + random_() % 20);
    auto header = native::read_header(path, {});
    if (!header.ok()) return {};
    session::EngineOptions options;
    options.approximate.head = head;
    return session::inspect(header->header, options).ok() ? head : session::HeadPolicy();
  }

  // If the file has early-exit probes.
  session::ExitPolicy random_exits(const std::string& path) {
    session::ExitPolicy exits;
    exits.confidence = 0.2 * static_cast<double>(random_() % 6);
    auto header = native::read_header(path, {});
    if (!header.ok()) return {};
    session::EngineOptions options;
    options.approximate.exits = exits;
    return session::inspect(header->header, options).ok() ? exits : session::ExitPolicy();
  }

  // Whether its MTP head can draft with these options.
  static bool has_nextn(const std::string& path, session::EngineOptions options) {
    auto header = native::read_header(path, {});
    if (!header.ok()) return false;
    options.nextn = true;
    return session::inspect(header->header, options).ok();
  }

  // The draft by the MTP head, set up to always draft; null if there is none.
  generate::NextnDraft* head() {
    session::Engine& engine = model_->engine();
    if (engine.nextn() == nullptr) return nullptr;
    make_it_pay(engine);
    return &nextn_.emplace(*engine.nextn());
  }

  // At, near or somewhat above the minimum, or unlimited.
  uint64_t budget() {
    switch (random_() % 4) {
      case 0:
        return min_;
      case 1:
        return min_ + random_() % 200000;
      case 2:
        return min_ + random_() % (min_ + 1);
      default:
        return 0;
    }
  }

  // A text that continues all or a part of what the session holds, or starts over.
  Tokens prompt(const session::Session& session) {
    const auto held = session.tokens();
    Tokens out;
    const uint64_t how = random_() % 8;
    if (how < 4) out.assign(held.begin(), held.end());
    if (how >= 4 && how < 6)
      out.assign(held.begin(), held.begin() + held.size() * (random_() % 5) / 4);
    pictures_->cut(&out);
    const size_t room =
        static_cast<size_t>(n_ctx_) - std::min<size_t>(out.size(), static_cast<size_t>(n_ctx_));
    const size_t longest = random_() % 8 == 0 ? static_cast<size_t>(n_ctx_) : 40;
    size_t more = 1 + random_() % longest;
    const bool sees = sees_ && random_() % 3 == 0;
    const size_t seen = sees ? MadePictures::kMaxTokens : 0;
    if (more + seen + 8 > room) {
      out.clear();
      more = std::min<size_t>(more, static_cast<size_t>(n_ctx_) - seen - 8);
    }
    const auto say = [&](size_t n) {
      while (n-- > 0)
        out.push_back(static_cast<Token>(random_() % static_cast<uint64_t>(n_vocab_)));
    };
    if (sees) {
      const size_t before = random_() % more;
      say(before);
      pictures_->append(random_, &out);
      more -= before;
    }
    say(more);
    return out;
  }

  // Swaps it into memory; if a full disk or an abort prevents that, it is unchanged.
  void enter(Live& live) {
    const bool resident = live.place->session() != nullptr;
    Tokens before(static_cast<size_t>(live.place->position()));
    ASSERT_TRUE(live.place->read_tokens(0, before).ok());
    if (const uint64_t how = random_() % 8; how < 2) {
      std::optional<FileLimit> limit;
      if (how == 0) limit.emplace(random_() % 50000);
      uint64_t pieces = how == 1 ? random_() % 6 : UINT64_MAX;
      const auto stopped = swap_->enter(*live.place, [&pieces] { return pieces-- > 0; });
      const Code wanted = how == 0 ? Code::kIo : Code::kAborted;
      ASSERT_TRUE(stopped.ok() || stopped.status().code() == wanted) << stopped.status().message();
      ASSERT_TRUE(stopped.ok() || !resident);
    }
    const auto session = swap_->enter(*live.place);
    ASSERT_TRUE(session.ok()) << session.status().message();
    live.session = *session;
    const auto held = live.session->tokens();
    ASSERT_TRUE(std::equal(held.begin(), held.end(), before.begin(), before.end()));
  }

  // Three sessions, kept in memory until they are released.
  void enter_three() {
    std::shuffle(std::begin(live_), std::end(live_), random_);
    for (Live& live : three()) {
      enter(live);
      if (sequence_.failed()) return;
      live.place->hold(true);
    }
  }
  std::span<Live> three() { return std::span(live_).first(3); }

  void answer(Live& live, bool cut) {
    const Tokens text = prompt(*live.session);
    generate::Options options;
    options.sampling.temperature = 0;
    options.ignore_eos = true;
    options.reuse_prefix = random_() % 8 != 0;
    options.max_tokens = static_cast<int64_t>(random_() % 6);
    RandomDrafts guesses(random_());
    if (const uint64_t how = random_() % 4; options_.draft_max > 0 && how > 0) {
      options.max_tokens *= 3;
      options.drafts.ngram = how == 1;
      if (how == 2) options.drafts.source = &guesses;
      if (how == 3) options.drafts.model = head();
    }
    const std::vector<generate::Media> media = pictures_->of(text);
    options.media = media;
    auto generation = generate::Generation::begin(*live.session, text, options);
    ASSERT_TRUE(generation.ok()) << generation.status().message();
    const int32_t max_ops = random_() % 3 == 0 ? 1 + static_cast<int32_t>(random_() % 20) : 0;
    uint64_t steps_left = cut ? random_() % 60 : UINT64_MAX;
    int moves = random_() % 6 == 0 ? 6 : 0;
    std::vector<float> logits;
    Tokens tokens;
    for (;; --steps_left) {
      if (steps_left == 0) {
        (*generation)->cancel();
        break;
      }
      // Each change restarts the pass, so without a limit a pass of many steps might never end.
      if (moves > 0 && random_() % 8 == 0) {
        --moves;
        move_budget();
      }
      if (logits.empty() && !live.session->busy()) {
        const auto now = live.session->logits();
        logits.assign(now.begin(), now.end());
      }
      const session::Step step = drive(**generation, cut ? 1 + max_ops : max_ops);
      for (const auto& piece : (*generation)->take_pieces()) tokens.push_back(piece.token);
      ASSERT_NE(step, session::Step::kFailed) << (*generation)->failure().message();
      if (step == session::Step::kDone) break;
    }
    if (cut && (*generation)->finish() == Finish::kCancelled) {
      const auto held = live.session->tokens();
      ASSERT_LE(held.size(), text.size() + tokens.size() + 1);
      const size_t n = std::min(held.size(), text.size());
      ASSERT_TRUE(std::equal(held.begin(), held.begin() + static_cast<int64_t>(n), text.begin()));
      return;
    }
    if (logits.empty()) {
      const auto now = live.session->logits();
      logits.assign(now.begin(), now.end());
    }
    const Answer expected = fresh_.answer(text, tokens.size(), *pictures_);
    ASSERT_EQ(tokens, expected.tokens) << "after " << text.size() << " tokens, "
                                       << (*generation)->counts().cached << " of them cached";
    ASSERT_EQ(logits.size(), expected.logits.size());
    ASSERT_EQ(std::memcmp(logits.data(), expected.logits.data(), logits.size() * sizeof(float)), 0)
        << "after " << text.size() << " tokens, " << (*generation)->counts().cached << " held";
  }

  struct Answering {
    session::Session* session = nullptr;
    Tokens text, tokens;
    std::unique_ptr<RandomDrafts> guesses;
    std::unique_ptr<generate::NextnDraft> nextn;
    std::unique_ptr<generate::Generation> generation;
    uint64_t begins = 0, cut = UINT64_MAX;  // after this many steps
  };

  // Generations that begin and end at random moments, all in one batch.
  void together() {
    if (random_() % 3 == 0) {
      auto fork = swap_->fork_of(*live_[random_() % 2].place);
      ASSERT_TRUE(fork.ok()) << fork.status().message();
      live_[4].place = std::move(*fork);
    }
    enter_three();
    if (sequence_.failed()) return;
    if (random_() % 3 == 0) {  // a fork in memory
      save(live_[0]);
      ASSERT_TRUE(write(*live_[1].session, saved_.back().bytes).ok());
    }
    generate::Scheduler scheduler(model_->engine().context());
    std::vector<Answering> answers(three().size());
    for (size_t i = 0; i < answers.size(); ++i) {
      answers[i].session = live_[i].session;
      answers[i].text = prompt(*live_[i].session);
      const Status seen = pictures_->see(*model_, *live_[i].session, answers[i].text);
      ASSERT_TRUE(seen.ok()) << seen.message();
      answers[i].begins = random_() % 3 == 0 ? random_() % 40 : 0;
      if (random_() % 4 == 0) answers[i].cut = answers[i].begins + random_() % 60;
      ASSERT_TRUE(scheduler.add(*live_[i].session).ok());
    }
    int moves = random_() % 3 == 0 ? 4 : 0;
    const int32_t max_ops = random_() % 2 == 0 ? 1 + static_cast<int32_t>(random_() % 20) : 0;
    bool working = true;
    for (uint64_t steps = 0; working; ++steps) {
      working = false;
      for (Answering& a : answers) {
        if (steps == a.begins) begin(scheduler, a);
        if (a.generation != nullptr && steps == a.cut) a.generation->cancel();
        if (sequence_.failed()) return;
        working = working || steps < a.begins;
      }
      if (moves > 0 && random_() % 8 == 0) {
        --moves;
        move_budget();
      }
      working = drive(scheduler, max_ops) != session::Step::kDone || working;
    }
    for (Answering& a : answers) {
      ASSERT_NE(a.generation->finish(), Finish::kFailed) << a.generation->failure().message();
      for (const auto& piece : a.generation->take_pieces()) a.tokens.push_back(piece.token);
      ASSERT_EQ(a.tokens, fresh_.answer(a.text, a.tokens.size(), *pictures_).tokens)
          << "after " << a.text.size() << " tokens, " << a.generation->counts().cached << " held";
    }
    for (Live& live : three()) live.place->hold(false);
  }

  void begin(generate::Scheduler& scheduler, Answering& a) {
    generate::Options options;
    options.sampling.temperature = 0;
    options.ignore_eos = true;
    options.max_tokens = static_cast<int64_t>(random_() % 6);
    a.guesses = std::make_unique<RandomDrafts>(random_());
    if (options_.draft_max > 0 && random_() % 2 == 0) options.drafts.source = a.guesses.get();
    if (options_.nextn && random_() % 2 == 0) {
      static_cast<void>(head());
      a.nextn = std::make_unique<generate::NextnDraft>(*model_->engine().nextn());
      options.drafts = {.model = a.nextn.get()};
    }
    auto generation = generate::Generation::begin(*a.session, a.text, options);
    ASSERT_TRUE(generation.ok()) << generation.status().message();
    a.generation = std::move(*generation);
    scheduler.add(*a.generation);
  }

  // One step, and the reads that it waits for.
  template <typename Steps>
  session::Step drive(Steps& steps, int32_t max_ops) {
    const session::Step step = steps.step(max_ops);
    if (step == session::Step::kBlocked) {
      const Status status = model_->wait();
      EXPECT_TRUE(status.ok()) << status.message();
    }
    return step;
  }

  void move_budget() {
    const uint64_t wanted = budget();
    const Status status = model_->set_memory_budget(wanted);
    ASSERT_TRUE(status.ok()) << wanted << " where " << min_
                             << " is the smallest: " << status.message();
    const session::MemoryPlan& plan = model_->engine().plan();
    ASSERT_TRUE(wanted == 0 || plan.total() <= wanted);
    ASSERT_EQ(model_->set_memory_budget(min_ / 2).code(), Code::kBudgetTooSmall);
  }

  void save(Live& live) {
    Saved saved;
    const auto bytes = swap_->state_bytes(*live.place);
    ASSERT_TRUE(bytes.ok());
    saved.bytes.resize(*bytes);
    for (size_t at = 0; at < saved.bytes.size();) {
      const size_t n = std::min<size_t>(1 + random_() % 70000, saved.bytes.size() - at);
      ASSERT_TRUE(swap_->read_state(*live.place, at, {&saved.bytes[at], n}).ok());
      at += n;
    }
    saved.tokens.resize(static_cast<size_t>(live.place->position()));
    ASSERT_TRUE(live.place->read_tokens(0, saved.tokens).ok());
    if (saved_.size() >= 4) saved_.erase(saved_.begin());
    saved_.push_back(std::move(saved));
  }

  Status write(session::Session& session, const std::vector<uint8_t>& bytes) {
    SLUICE_RETURN_IF_ERROR(session.begin_restore(bytes.size()));
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = std::min<size_t>(1 + random_() % 70000, bytes.size() - at);
      SLUICE_RETURN_IF_ERROR(session.write_state({&bytes[at], n}));
      at += n;
    }
    return {};
  }

  void restore(Live& live) {
    if (saved_.empty()) return;
    const Saved& saved = saved_[random_() % saved_.size()];
    const Status status = write(*live.session, saved.bytes);
    ASSERT_TRUE(status.ok()) << status.message();
    const auto held = live.session->tokens();
    ASSERT_TRUE(std::equal(held.begin(), held.end(), saved.tokens.begin(), saved.tokens.end()));
  }

  // A truncated state or one with a flipped bit is an error and leaves an empty sequence.
  void damage(Live& live) {
    if (saved_.empty()) return;
    std::vector<uint8_t> bytes = saved_[random_() % saved_.size()].bytes;
    if (random_() % 2 == 0) {
      bytes[random_() % bytes.size()] ^= static_cast<uint8_t>(1 << random_() % 8);
    } else {
      bytes.resize(random_() % bytes.size());
    }
    const Status status = write(*live.session, bytes);
    ASSERT_TRUE(status.code() == Code::kCorrupt || status.code() == Code::kContextFull)
        << status.message();
    ASSERT_EQ(live.session->position(), 0);
  }

  // Rejected prompts change nothing.
  void refuse(Live& live) {
    const int32_t before = live.session->position();
    const Tokens too_long(static_cast<size_t>(n_ctx_) + 1 + random_() % 100, 1);
    EXPECT_EQ(live.session->sync(too_long).status().code(), Code::kPromptTooLong);
    const Tokens foreign = {1, n_vocab_};
    EXPECT_EQ(live.session->sync(foreign).status().code(), Code::kInvalidArgument);
    EXPECT_EQ(live.session->sync({}).status().code(), Code::kPromptEmpty);
    const Tokens unseen = {1, session::kMediaToken, 1};
    EXPECT_EQ(live.session->sync(unseen).status().code(), Code::kMediaMissing);
    ASSERT_EQ(live.session->position(), before);
  }

  void rewind(Live& live) {
    const int32_t to = static_cast<int32_t>(random_() % 200);
    const int32_t before = live.session->position();
    const int32_t reached = live.session->rewind(to);
    ASSERT_LE(reached, std::min(to, before));
    ASSERT_EQ(reached, live.session->position());
  }

  RandomSequence& sequence_;
  std::mt19937_64 random_;
  int32_t n_ctx_;
  kv::KvTypes types_;
  kv::KvPolicy policy_;
  session::HeadPolicy head_;
  session::ExitPolicy exits_;
  Fresh fresh_;
  session::EngineOptions options_;
  uint64_t min_ = 0;
  std::unique_ptr<native::Model> model_;
  std::unique_ptr<native::SessionSwap> swap_;
  std::optional<generate::NextnDraft> nextn_;  // destroyed before its model
  std::optional<MadePictures> pictures_;
  bool sees_ = false;
  Live live_[5];
  std::vector<Saved> saved_;
  Token n_vocab_ = 0;
};

struct OperationsCase {
  Reference reference;
  int threads;
};

// Eight layers with early-exit probes; written by each process.
std::string model_with_exits() {
  const Layers layers = {0, 1, 2, 3, 0, 1, 2, 3};
  session::EngineOptions options;
  options.n_ctx = 64;
  options.approximate.exits.measures = true;
  Opened opened = Deep(layers).open(options);
  if (opened.session == nullptr) return {};
  Deep deep(layers);
  deep.set(gguf::kExitWeights, mixed_exits(opened, {1, 17, 29, 45, 31, 8, 12, 77, 5, 9, 200, 41}));
  const std::string path = testing::TempDir() + "exits-" + std::to_string(getpid()) + ".gguf";
  const Result<convert::Source> source =
      convert::Source::create(deep.header.header, deep.header.sources);
  EXPECT_TRUE(source.ok());
  FileSink sink(path);
  if (source.ok()) {
    EXPECT_TRUE(convert::to_gguf(*source, {}, &sink).ok());
  }
  return path;
}

// The sample model with its output vectors by cluster; written by each process.
std::string model_by_cluster() {
  const std::string path = testing::TempDir() + "in-order-" + std::to_string(getpid()) + ".qsf";
  Result<native::ModelHeader> model =
      native::read_header(source_dir() + "/examples/models/sluice-tales-Q8_0.gguf", {});
  if (!model.ok()) return {};
  const Result<convert::Source> source = convert::Source::create(model->header, model->sources);
  convert::Options options;
  options.cluster_head = true;
  FileSink sink(path);
  EXPECT_TRUE(convert::to_qsf(*source, options, convert::Packing::kNone, &sink).ok());
  return path;
}

// With an MTP head, which is right if nothing interferes.
std::string model_with_nextn(bool recurrent) {
  const std::string path = testing::TempDir() + "nextn-" + std::to_string(getpid()) + ".gguf";
  const MadeNextn made({.recurrent = recurrent, .right = true, .n_ctx = 4096});
  std::filesystem::copy_file(made.path, path, std::filesystem::copy_options::overwrite_existing);
  return path;
}

std::string made_model(const std::string& name) {
  if (name.starts_with("nextn")) return model_with_nextn(name == "nextn_states");
  return name == "exits" ? model_with_exits() : model_by_cluster();
}

std::vector<OperationsCase> operations_cases() {
  std::vector<OperationsCase> out;
  const auto add = [&out](std::vector<Reference> references) {
    for (Reference& r : references) out.push_back({r, 1 + static_cast<int>(out.size() % 2)});
  };
  add(read_manifest(fixture_folder("arch")));
  add(read_manifest(own_folder("families")));
  Reference clusters;
  clusters.name = "clusters";
  clusters.path = own_folder("qsf") + "/clusters.qsf";
  Reference embedding;
  embedding.name = "embedding";
  embedding.path = own_folder("qsf") + "/embedding.qsf";
  add({clusters, embedding});
  Reference exits;
  exits.name = "exits";  // stands for the path of made_model()
  Reference by_cluster;
  by_cluster.name = "by_cluster";
  Reference nextn, nextn_states;
  nextn.name = "nextn";
  nextn_states.name = "nextn_states";
  add({exits, by_cluster, nextn, nextn_states});
  // One of each recurrent kind: their states are the hardest to rewind. And pictures on grids.
  const std::vector<std::string> further = {
      "mamba",   "mamba2",  "falcon-h1", "granitehybrid-dense",
      "qwen35",  "rwkv6",   "rwkv7",     "plamo2",
      "lfm2moe", "qwen2vl", "qwen3vl"};
  add(read_manifest(shared_folder("families"), &further));
  return out;
}

bool runs_with(const std::string& path, int32_t n_ctx) {
  auto header = native::read_header(path, {});
  if (!header.ok()) return false;
  session::EngineOptions options;
  options.n_ctx = n_ctx;
  return session::inspect(header->header, options).ok();
}

class RandomOperationsTest : public testing::TestWithParam<OperationsCase> {};

TEST_P(RandomOperationsTest, EveryOutputEqualsThatOfTheTextAlone) {
  const OperationsCase& c = GetParam();
  const bool made = c.reference.path.empty();
  const std::string path = made ? made_model(c.reference.name) : c.reference.path;
  // Attention in one part, in several, and with rings that wrap around.
  for (const int32_t n_ctx : {200, 700, 1700}) {
    const bool runs = runs_with(path, n_ctx);
    EXPECT_TRUE(runs || n_ctx > 500) << path;
    if (!runs) continue;  // a learned position table is shorter
    SCOPED_TRACE("context " + std::to_string(n_ctx));
    const uint64_t count = kSanitized ? 3 : 9;
    run_random_sequences(1, n_ctx > 1000 ? count / 3 : count, [&](RandomSequence& sequence) {
      Operations operations(path, n_ctx, c.threads, sequence);
      if (operations.ready() && !sequence.failed()) operations.run();
    });
    if (HasFailure()) break;
  }
  if (made) std::remove(path.c_str());
}

std::string operations_name(const testing::TestParamInfo<OperationsCase>& info) {
  std::string name = info.param.reference.name + "_" + std::to_string(info.param.threads);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, RandomOperationsTest, testing::ValuesIn(operations_cases()),
                         operations_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(RandomOperationsTest);

}  // namespace
}  // namespace sluice::test
