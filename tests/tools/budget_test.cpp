// The memory budget as the operating system sees it: the program generates from a model several
// times larger than its budget, and its peak RSS stays within a small constant of the budget.
// bench:budget does the same with 3.6 GB, and in a browser.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../paths.h"
#include "../sanitized.h"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBudget = 64 << 20, kRoom = 20 << 20;

struct Ran {
  int status = -1;
  uint64_t peak = 0;  // bytes
  nlohmann::json said;
};

Ran run(const std::vector<std::string>& arguments) {
  Ran out;
  int ends[2];
  if (pipe(ends) != 0) return out;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    std::vector<char*> list;
    for (const std::string& a : arguments) list.push_back(const_cast<char*>(a.c_str()));
    list.push_back(nullptr);
    execv(list[0], list.data());
    _exit(127);
  }
  close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t n; (n = read(ends[0], part, sizeof part)) > 0;) {
    text.append(part, static_cast<size_t>(n));
  }
  close(ends[0]);
  struct rusage usage {};
  wait4(child, &out.status, 0, &usage);
  out.peak = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
  out.said = nlohmann::json::parse(text, nullptr, false);
  return out;
}

TEST(Budget, BoundsTheResidentMemoryOfAModelFourTimesTheBudget) {
  if (test::kSanitized) GTEST_SKIP() << "sanitizers allocate memory themselves";
  const fs::path file =
      fs::temp_directory_path() / ("sluice-budget-" + std::to_string(getpid()) + ".gguf");
  const std::string make = sluice::test::program_path("sluice-make-model") +
                           " -q -s tinyllama-1.1b -t q4_0 " + "--layers 10 --vocab 4000 " +
                           file.string();
  ASSERT_EQ(std::system(make.c_str()), 0);
  EXPECT_GT(fs::file_size(file), 3 * kBudget);
  std::string prompt;
  for (int i = 0; i < 30; ++i) prompt += "the river ran past a small mill ";
  const std::vector<std::string> whole = {sluice::test::program_path("sluice"),
                                          "run",
                                          file.string(),
                                          "-p",
                                          prompt,
                                          "-n",
                                          "4",
                                          "--temp",
                                          "0",
                                          "--json",
                                          "--ignore-eos",
                                          "--ctx",
                                          "512",
                                          "--threads",
                                          "2"};
  std::vector<std::string> bounded = whole;
  bounded.insert(bounded.end(), {"--memory-budget", std::to_string(kBudget)});
  const Ran all = run(whole), some = run(bounded);
  fs::remove(file);
  ASSERT_EQ(all.status, 0);
  ASSERT_EQ(some.status, 0);
  EXPECT_EQ(some.said["text"], all.said["text"]);
  EXPECT_NE(some.said["text"], "");
  EXPECT_LE(some.said["memory"]["total"].get<uint64_t>(), kBudget);
  EXPECT_LE(some.peak, kBudget + kRoom);
  EXPECT_GT(all.peak, 2 * kBudget);  // proof that the measurement sees the weights
}

}  // namespace
}  // namespace sluice::tools
