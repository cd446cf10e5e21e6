// Fuzzes parsing the head of an HTTP response, line by line. For any input sizes stay far from
// overflow, the status has three digits, and strings are no longer than a line may be.
#include <cstdlib>
#include <string_view>

#include "io/http_response.h"

namespace {

void check(bool ok) {
  if (!ok) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  sluice::io::HttpResponse answer;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const size_t n = end == std::string_view::npos ? rest.size() : end + 1;
    if (sluice::io::HttpResponse::begins(rest)) answer = {};
    answer.read_line(rest.substr(0, n));
    rest.remove_prefix(n);
  }
  check(answer.status >= 0 && answer.status <= 999);
  for (const auto& size_told : {answer.content_length, answer.retry_after_seconds,
                                answer.range.first, answer.range.last, answer.range.total}) {
    check(!size_told || *size_told >> 62 == 0);
  }
  for (const auto* text :
       {&answer.etag, &answer.last_modified, &answer.encoding, &answer.type, &answer.retry_after}) {
    check(text->size() <= 4096);
  }
  return 0;
}
