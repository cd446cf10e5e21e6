#include "cli/dump_writer.h"

#include <charconv>
#include <filesystem>

#include "platform/utf8_path.h"

namespace sluice::cli {
namespace {

// -1: all layers.
Result<int> parse_layer(const std::string& text, int64_t n_layer) {
  if (text == "all") return -1;
  int layer = -1;
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), layer);
  const bool whole = bad == std::errc() && end == text.data() + text.size();
  if (whole && layer >= 0 && layer < n_layer) return layer;
  return error(Code::kInvalidArgument, "the layer \"%.32s\" must be 0 to %lld, or \"all\"",
               text.c_str(), static_cast<long long>(n_layer - 1));
}

}  // namespace

Result<DumpWriter> DumpWriter::create(const DumpOptions& options, int64_t n_layer) {
  const Result<int> layer = parse_layer(options.layer, n_layer);
  if (!layer.ok()) return layer.status();
  std::error_code problem;
  std::filesystem::create_directories(platform::to_path(options.out), problem);
  if (problem) {
    return error(Code::kIo, "cannot create the directory \"%.256s\": %s", options.out.c_str(),
                 problem.message().c_str());
  }
  return DumpWriter(options, *layer);
}

Result<AtomicFile> DumpWriter::create_file(const std::string& name) {
  Result<AtomicFile> file = AtomicFile::create(
      platform::to_utf8(platform::to_path(options_->out) / name), options_->common.model);
  if (!file.ok()) status_ = file.status();
  return file;
}

void DumpWriter::write(const std::string& name, int layer, const std::array<int32_t, 3>& ne,
                       const float* data, int64_t stride) {
  if ((layer >= 0 && layer_ >= 0 && layer != layer_) || !status_.ok()) return;
  Result<AtomicFile> file = create_file(name + ".f32");
  if (!file.ok()) return;
  const size_t row = static_cast<size_t>(ne[0]) * static_cast<size_t>(ne[1]) * sizeof(float);
  for (int32_t t = 0; t < ne[2]; ++t) file->write(data + t * stride, row);
  status_ = file->finish();
  const std::string op = name.substr(name.rfind('.') + 1);
  index_ += name + '\t' + op + '\t' + std::to_string(ne[0]) + ' ';
  index_ += ne[1] == 1 ? std::to_string(ne[2]) + " 1 1\n"
                       : std::to_string(ne[1]) + ' ' + std::to_string(ne[2]) + " 1\n";
  ++count_;
}

Status DumpWriter::finish() {
  if (!status_.ok()) return status_;
  Result<AtomicFile> file = create_file("index.txt");
  if (!file.ok()) return status_;
  file->write(index_.data(), index_.size());
  return file->finish();
}

}  // namespace sluice::cli
