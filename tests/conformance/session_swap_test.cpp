// Swapping sessions that exceed the engine's memory. A full disk, an abort and a damaged file are
// errors after which every conversation is unchanged; and what swapping costs.
// random_operations_test.cpp shows that swapped sessions are bit-identical for any model, types and
// policy.
#include "native/session_swap.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "file_limit_util.h"
#include "fixtures_util.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using native::Conversation;
using native::SessionSwap;
using session::Session;
using session::Token;
using Tokens = std::vector<Token>;

class SessionSwapTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "sluice-swap-" + std::to_string(getpid());
    open(2);
  }
  void TearDown() override {
    talks_.clear();
    swap_.reset();
    fs::remove_all(directory_);
  }
  void open(int32_t n_sessions) {
    talks_.clear();
    swap_.reset();
    native::LoadOptions load;
    load.engine.n_ctx = 256;
    load.engine.n_threads = 1;
    load.engine.n_sessions = n_sessions;
    auto model = native::Model::open(sample_model(), load);
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = std::move(*model);
    auto swap = SessionSwap::open(model_->engine().context(), directory_);
    ASSERT_TRUE(swap.ok()) << swap.status().message();
    swap_ = std::move(*swap);
  }
  // Creates conversations of 100 tokens each.
  void talk(size_t n) {
    for (size_t i = 0; i < n; ++i) {
      auto made = swap_->create();
      ASSERT_TRUE(made.ok()) << made.status().message();
      talks_.push_back(std::move(*made));
      compute(*talks_.back(), text(i));
    }
  }
  static Tokens text(size_t i) {
    Tokens out(100);
    for (size_t k = 0; k < out.size(); ++k) out[k] = static_cast<Token>((k * (i + 3) + i) % 500);
    return out;
  }
  void compute(Conversation& talk, const Tokens& tokens) {
    const auto session = swap_->enter(talk);
    ASSERT_TRUE(session.ok()) << session.status().message();
    ASSERT_TRUE((*session)->sync(tokens).ok());
    ASSERT_TRUE(model_->run(**session).ok());
  }
  // Checks its tokens in memory or on disk, and that it continues from there.
  void expect_whole(size_t i) {
    Tokens held(static_cast<size_t>(talks_[i]->position()));
    ASSERT_TRUE(talks_[i]->read_tokens(0, held).ok());
    EXPECT_EQ(held, text(i));
    const auto session = swap_->enter(*talks_[i]);
    ASSERT_TRUE(session.ok()) << session.status().message();
    Tokens more = text(i);
    more.push_back(7);
    const auto kept = (*session)->sync(more);
    ASSERT_TRUE(kept.ok());
    EXPECT_EQ(*kept, 100);
    ASSERT_TRUE(model_->run(**session).ok());
    const std::vector<float> logits((*session)->logits().begin(), (*session)->logits().end());
    (*session)->clear();
    ASSERT_TRUE((*session)->begin(more).ok());
    ASSERT_TRUE(model_->run(**session).ok());
    EXPECT_TRUE(std::equal(logits.begin(), logits.end(), (*session)->logits().begin()));
    ASSERT_EQ((*session)->rewind(100), 100);
  }
  [[nodiscard]] size_t n_swapped() const { return swap_->counts().in_files; }

  std::string directory_;
  std::unique_ptr<native::Model> model_;
  std::unique_ptr<SessionSwap> swap_;
  std::vector<std::unique_ptr<Conversation>> talks_;
};

TEST_F(SessionSwapTest, KeepsTheLastUsedInMemoryAndTheOthersInUnnamedFiles) {
  talk(6);
  EXPECT_EQ(n_swapped(), 4u);
  EXPECT_TRUE(fs::is_empty(directory_));
  EXPECT_NE(talks_[5]->session(), nullptr);
  EXPECT_EQ(talks_[3]->session(), nullptr);
  EXPECT_EQ(talks_[3]->shared_prefix(text(3)), 100);
  Tokens other = text(3);
  other[40] += 1;
  EXPECT_EQ(talks_[3]->shared_prefix(other), 40);
  for (size_t i = 0; i < 6; ++i) expect_whole(i);
  EXPECT_GT(swap_->counts().bytes_read, 0u);
  talks_.erase(talks_.begin(), talks_.begin() + 4);
  EXPECT_EQ(n_swapped(), 0u);
}

TEST_F(SessionSwapTest, ForksInMemoryAndOnDisk) {
  open(1);
  talk(2);
  for (const size_t from : {0, 1}) {  // on disk, in memory
    EXPECT_EQ(talks_[from]->swapped(), from == 0);
    auto fork = swap_->fork_of(*talks_[from]);
    ASSERT_TRUE(fork.ok()) << fork.status().message();
    EXPECT_NE(talks_[1]->session(), nullptr);
    Tokens held(100);
    ASSERT_TRUE((*fork)->read_tokens(0, held).ok());
    EXPECT_EQ(held, text(from));
    compute(**fork, {1, 2, 3});
    expect_whole(from);
    expect_whole(1);
  }
}

TEST_F(SessionSwapTest, LockedOrBusyOnesStayInMemory) {
  talk(3);
  talks_[1]->hold(true);
  ASSERT_TRUE(talks_[2]->session()->begin(Tokens{5}).ok());
  EXPECT_EQ(swap_->enter(*talks_[0]).status().code(), Code::kInvalidArgument);
  talks_[2]->session()->cancel();
  expect_whole(0);
  EXPECT_NE(talks_[1]->session(), nullptr);
}

TEST_F(SessionSwapTest, AFullDiskLeavesAllUnchanged) {
  talk(4);
  for (const uint64_t room : {0, 100, 5000, 70000}) {
    const FileLimit limit(room);
    const auto entered = swap_->enter(*talks_[0]);
    EXPECT_EQ(entered.status().code(), Code::kIo) << room;
    EXPECT_NE(entered.status().message().find(directory_), std::string::npos);
    EXPECT_FALSE(swap_->fork_of(*talks_[2]).ok());
    EXPECT_FALSE(swap_->fork_of(*talks_[0]).ok());
  }
  EXPECT_EQ(n_swapped(), 2u);
  for (size_t i = 0; i < 4; ++i) expect_whole(i);
}

TEST_F(SessionSwapTest, AnUnusableDirectoryIsAnError) {
  const std::string file = directory_ + "/file";
  std::ofstream(file) << "x";
  EXPECT_EQ(SessionSwap::open(model_->engine().context(), file + "/below").status().code(),
            Code::kIo);
  talk(3);
  fs::remove_all(directory_);
  EXPECT_EQ(swap_->enter(*talks_[0]).status().code(), Code::kIo);
  fs::create_directories(directory_);
  for (size_t i = 0; i < 3; ++i) expect_whole(i);
}

TEST_F(SessionSwapTest, AnAbortLeavesAllUnchanged) {
  talk(4);
  for (int pieces = 0;; ++pieces) {
    int left = pieces;
    const auto entered = swap_->enter(*talks_[0], [&left] { return left-- > 0; });
    if (entered.ok()) {
      EXPECT_GT(pieces, 2);  // parts of the one swapped out and the one swapped in
      break;
    }
    ASSERT_EQ(entered.status().code(), Code::kAborted);
    EXPECT_TRUE(talks_[0]->swapped());
  }
  for (size_t i = 0; i < 4; ++i) expect_whole(i);
}

#if defined(__linux__)
// Unnamed files of the directory that this process has open.
std::vector<std::string> open_files(const std::string& directory) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (fs::read_symlink(entry, gone).string().starts_with(directory)) out.push_back(entry.path());
  }
  return out;
}

TEST_F(SessionSwapTest, AnUnreadableFileIsAnErrorUntilTheSequenceIsCleared) {
  talk(4);
  const std::vector<std::string> files = open_files(directory_);
  ASSERT_EQ(files.size(), 2u);
  for (const std::string& file : files) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(fs::file_size(file) / 2));
    stream.put('?').put('!').put('?');
  }
  ASSERT_EQ(swap_->enter(*talks_[0]).status().code(), Code::kCorrupt);
  ASSERT_EQ(swap_->enter(*talks_[1]).status().code(), Code::kCorrupt);
  fs::resize_file(files[0], fs::file_size(files[0]) - 1);
  fs::resize_file(files[1], 8);
  EXPECT_EQ(swap_->enter(*talks_[0]).status().code(), Code::kIo);
  EXPECT_EQ(swap_->enter(*talks_[1]).status().code(), Code::kIo);
  EXPECT_LE(std::min(talks_[0]->shared_prefix(text(0)), talks_[1]->shared_prefix(text(1))), 2);
  for (const size_t i : {0, 1}) {
    SessionSwap::clear(*talks_[i]);
    compute(*talks_[i], text(i));
  }
  for (size_t i = 0; i < 4; ++i) expect_whole(i);
}
#endif

TEST_F(SessionSwapTest, WithoutADirectoryThereAreAsManyAsPlanned) {
  const auto swap = SessionSwap::open(model_->engine().context(), "");
  ASSERT_TRUE(swap.ok());
  const auto one = (*swap)->create(), two = (*swap)->create();
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ((*swap)->create().status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::test
