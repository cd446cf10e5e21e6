// Loads a model from inside another file, such as a game's archive, with a custom reader.
//     reader FILE OFFSET PROMPT [SEED]
// The model begins at byte OFFSET of FILE and extends to its end.
#include <sluice.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

namespace {

class Archive {
 public:
  Archive(const std::string& path, uint64_t offset) : file_(path, std::ios::binary) {
    file_.seekg(0, std::ios::end);
    const std::streamoff end = file_.tellg();
    if (!file_ || static_cast<std::streamoff>(offset) > end) {
      throw std::runtime_error(path + " cannot be read at byte " + std::to_string(offset));
    }
    offset_ = offset;
    length_ = static_cast<uint64_t>(end) - offset;
  }

  // A stream has only one position, so the engine's threads must read one at a time.
  sluice_reader reader() {
    sluice_reader out{};
    out.size = sizeof out;
    out.length = length_;
    out.user = this;
    out.serialize_reads = 1;
    out.read = [](void* user, uint64_t offset, void* buffer, size_t length) -> int32_t {
      return static_cast<Archive*>(user)->read(offset, buffer, length) ? 0 : 1;
    };
    return out;
  }
  uint64_t bytes_read() const { return bytes_read_; }

 private:
  bool read(uint64_t offset, void* buffer, size_t length) {
    file_.seekg(static_cast<std::streamoff>(offset_ + offset));
    file_.read(static_cast<char*>(buffer), static_cast<std::streamsize>(length));
    bytes_read_ += length;
    return static_cast<bool>(file_);
  }

  std::ifstream file_;
  uint64_t offset_ = 0, length_ = 0, bytes_read_ = 0;
};

struct Free {
  void operator()(sluice_engine* engine) const { sluice_engine_free(engine); }
  void operator()(sluice_session* session) const { sluice_session_free(session); }
};

void check(sluice_status status) {
  if (status == SLUICE_OK) return;
  throw std::runtime_error(std::string(sluice_last_error()) + " [" + sluice_status_name(status) +
                           "]");
}

void tell(Archive& archive, const char* prompt, const char* seed) {
  const sluice_reader reader = archive.reader();
  sluice_engine* engine = nullptr;
  check(sluice_load_reader(&reader, nullptr, &engine));
  const std::unique_ptr<sluice_engine, Free> owned_engine(engine);

  sluice_session* session = nullptr;
  check(sluice_session_create(engine, &session));
  const std::unique_ptr<sluice_session, Free> owned_session(session);

  sluice_sampling sampling;
  check(sluice_sampling_default(&sampling, sizeof sampling));
  if (seed != nullptr) sampling.seed = std::strtoull(seed, nullptr, 10);
  sluice_generate_options options;
  check(sluice_generate_options_default(&options, sizeof options));
  options.sampling = &sampling;
  options.max_tokens = 128;
  options.on_token = [](void*, const sluice_token_event* piece) -> int32_t {
    std::cout.write(piece->text, static_cast<std::streamsize>(piece->length)).flush();
    return std::cout ? 0 : 1;
  };
  std::cout << prompt;
  check(sluice_generate(session, prompt, SLUICE_TERMINATED, &options, nullptr));
  std::cout << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::cerr << "usage: reader FILE OFFSET PROMPT [SEED]\n";
    return 2;
  }
  try {
    Archive archive(argv[1], std::strtoull(argv[2], nullptr, 10));
    tell(archive, argv[3], argc > 4 ? argv[4] : nullptr);
    std::cerr << archive.bytes_read() << " bytes read from the archive\n";
  } catch (const std::exception& problem) {
    std::cerr << "reader: " << problem.what() << '\n';
    return 1;
  }
  return 0;
}
