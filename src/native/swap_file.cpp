#include "native/swap_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace sluice::native {
namespace {

Status cannot_write(const std::string& directory) {
  return error(Code::kIo, "a session could not be written to \"%.256s\": %s", directory.c_str(),
               std::strerror(errno));
}

}  // namespace

Status SwapFile::check(const std::string& directory) {
  const bool made = platform::make_directories(directory);
  return made && platform::File::temporary(directory).valid() ? Status() : cannot_write(directory);
}

Result<SwapFile> SwapFile::write(const session::Session& session, const std::string& directory,
                                 std::span<uint8_t> piece, const std::function<bool()>& wanted) {
  const auto tokens = session.tokens();
  SwapFile out;
  out.n_tokens_ = static_cast<int32_t>(tokens.size());
  out.state_bytes_ = session.sequence().state_bytes();
  out.file_ = platform::File::temporary(directory);
  if (!out.holds() || !out.file_.write_at(0, tokens.data(), tokens.size_bytes())) {
    return cannot_write(directory);
  }
  for (uint64_t at = 0; at < out.state_bytes_;) {
    if (wanted && !wanted()) return error(Code::kAborted, "the call was cancelled");
    const size_t n = static_cast<size_t>(std::min<uint64_t>(out.state_bytes_ - at, piece.size()));
    SLUICE_RETURN_IF_ERROR(session.read_state(at, piece.first(n)));
    if (!out.file_.write_at(out.state_at() + at, piece.data(), n)) return cannot_write(directory);
    at += n;
  }
  return out;
}

Result<SwapFile> SwapFile::copy(const SwapFile& from, const std::string& directory,
                                std::span<uint8_t> piece) {
  SwapFile out;
  out.n_tokens_ = from.n_tokens_;
  out.state_bytes_ = from.state_bytes_;
  out.file_ = platform::File::temporary(directory);
  if (!out.holds()) return cannot_write(directory);
  for (uint64_t at = 0; at < from.bytes();) {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(from.bytes() - at, piece.size()));
    SLUICE_RETURN_IF_ERROR(from.read(at, piece.data(), n));
    if (!out.file_.write_at(at, piece.data(), n)) return cannot_write(directory);
    at += n;
  }
  return out;
}

Status SwapFile::read(uint64_t offset, void* out, size_t n) const {
  if (file_.read_at(offset, out, n) == static_cast<int64_t>(n)) return {};
  return error(Code::kIo, "a swapped-out session could not be read from its file");
}

Status SwapFile::read_tokens(int32_t first, std::span<session::Token> out) const {
  return read(static_cast<uint64_t>(first) * sizeof(session::Token), out.data(), out.size_bytes());
}

Status SwapFile::read_state(uint64_t offset, std::span<uint8_t> out) const {
  if (offset > state_bytes_ || out.size() > state_bytes_ - offset) {
    return error(Code::kInvalidArgument, "the saved state has %llu bytes",
                 static_cast<unsigned long long>(state_bytes_));
  }
  return read(state_at() + offset, out.data(), out.size());
}

}  // namespace sluice::native
