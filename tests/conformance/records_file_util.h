// A QSF file with experts side by side.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "convert/convert.h"
#include "native/model_header.h"
#include "tests/conformance/file_sink_util.h"

namespace sluice::test {

// A QSF file of a model, deleted at the end.
class RecordsFile {
 public:
  explicit RecordsFile(const std::string& model) {
    Result<native::ModelHeader> from = native::read_header(model, {});
    EXPECT_TRUE(from.ok()) << from.status().message();
    const Result<convert::Source> source = convert::Source::create(from->header, from->sources);
    EXPECT_TRUE(source.ok());
    FileSink file(path);
    convert::Options options;
    options.expert_records = true;
    const auto made = convert::to_qsf(*source, options, convert::Packing::kNone, &file);
    EXPECT_TRUE(made.ok()) << made.status().message();
  }
  ~RecordsFile() { std::filesystem::remove(path); }
  RecordsFile(const RecordsFile&) = delete;
  RecordsFile& operator=(const RecordsFile&) = delete;

  const std::string path = (std::filesystem::temp_directory_path() /
                            ("sluice-records-" + std::to_string(getpid()) + ".qsf"))
                               .string();
};

}  // namespace sluice::test
