// Pictures in requests: data URLs, addresses that a server may be made to connect to, and which
// projector lies beside a model.
#include "native/picture_source.h"

#include <gtest/gtest.h>

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "http_test_server.h"
#include "io/guarded_fetch.h"
#include "io/public_address.h"
#include "media/data_url.h"
#include "native/hub_files.h"

namespace sluice {
namespace {

std::string data_of(std::string_view url, size_t most = 100) {
  const auto bytes = media::read_data_url(url, most);
  if (!bytes.ok()) return "error: " + bytes.status().message();
  return {bytes->begin(), bytes->end()};
}

TEST(PictureSource, DataUrls) {
  EXPECT_EQ(data_of("data:image/png;base64,aGVsbG8="), "hello");
  EXPECT_EQ(data_of("data:;base64,aGVsbG8"), "hello");
  EXPECT_EQ(data_of("DATA:image/jpeg;charset=x;BASE64,aGVs\nbG8=\n"), "hello");
  EXPECT_EQ(data_of("data:;base64,_-_-"), "\xff\xef\xfe");
  EXPECT_EQ(data_of("data:;base64,/+/+"), "\xff\xef\xfe");
  EXPECT_EQ(data_of("data:;base64,"), "");
  const std::string none = "error: the data URL of a picture is not in base64";
  for (const char* bad : {"", "data:", "data:image/png,hello", "data:image/png;base64",
                          "http://a/;base64,aGVsbG8=", "data:;base64,a", "data:;base64,aGVsb*8=",
                          "data:;base64,aG=VsbG8", "data:;base64,aGVsbG8===", "data:base64,aGVs"}) {
    EXPECT_EQ(data_of(bad), none) << bad;
  }
  EXPECT_EQ(data_of("data:;base64,aGVsbG8=", 5), "hello");
  EXPECT_EQ(data_of("data:;base64,aGVsbG8=", 4), "error: a picture has 5 bytes; the limit is 4");
  // Every truncation is an error or a prefix.
  const std::string whole = "data:image/png;base64,aGVsbG8gd29ybGQ=";
  for (size_t n = 0; n < whole.size(); ++n) {
    const std::string cut = data_of(whole.substr(0, n));
    EXPECT_TRUE(cut == none || std::string("hello world").starts_with(cut)) << n << cut;
  }
}

bool is_public(const std::vector<int>& bytes) {
  std::vector<uint8_t> raw;
  for (const int byte : bytes) raw.push_back(static_cast<uint8_t>(byte));
  if (raw.size() > 4) raw.resize(16);
  return io::is_public_address(raw);
}

TEST(PictureSource, PublicAddresses) {
  for (const auto& address : std::vector<std::vector<int>>{{8, 8, 8, 8},
                                                           {1, 1, 1, 1},
                                                           {172, 15, 0, 1},
                                                           {172, 32, 0, 1},
                                                           {100, 63, 255, 255},
                                                           {100, 128, 0, 0},
                                                           {11, 0, 0, 1},
                                                           {192, 169, 0, 1},
                                                           {223, 255, 255, 255},
                                                           {126, 255, 255, 255},
                                                           {128, 0, 0, 1},
                                                           {198, 17, 255, 255},
                                                           {198, 20, 0, 0},
                                                           {0x26, 0x06, 0x47, 0x00, 0x47},
                                                           {0x2a, 0x00, 0x14, 0x50, 0x40}}) {
    EXPECT_TRUE(is_public(address)) << address[0] << "." << address[1];
  }
  for (const auto& address : std::vector<std::vector<int>>{
           {0, 0, 0, 0},
           {10, 1, 2, 3},
           {100, 64, 0, 1},
           {100, 127, 255, 255},
           {127, 0, 0, 1},
           {127, 255, 255, 255},
           {169, 254, 169, 254},
           {172, 16, 0, 1},
           {172, 31, 255, 255},
           {192, 0, 0, 8},
           {192, 0, 2, 1},
           {192, 88, 99, 1},
           {192, 168, 0, 1},
           {198, 18, 0, 1},
           {198, 19, 255, 255},
           {198, 51, 100, 1},
           {203, 0, 113, 9},
           {224, 0, 0, 1},
           {239, 255, 255, 255},
           {240, 0, 0, 1},
           {255, 255, 255, 255},
           {},
           {1, 2, 3},
           {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},             // ::
           {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},             // ::1
           {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 8, 8, 8, 8},       // mapped
           {0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, 127, 0, 0, 1},  // NAT64
           {0x20, 0x02, 0x7f, 0, 0, 1},                                  // 6to4
           {0x20, 0x01, 0, 0, 1},                                        // Teredo
           {0x20, 0x01, 0x0d, 0xb8, 1},                                  // documentation
           {0xfe, 0x80, 0, 0, 1},                                        // link-local
           {0xfc, 0x00, 0, 0, 1},
           {0xfd, 0x12, 0, 0, 1},     // unique local
           {0xff, 0x02, 0, 0, 1}}) {  // multicast
    EXPECT_FALSE(is_public(address))
        << (address.size() > 1 ? address[0] : -1) << "." << (address.size() > 1 ? address[1] : -1);
  }
}

TEST(PictureSource, ProjectorsBesideModels) {
  const auto chosen = [](const std::vector<std::string>& names, std::string_view model) {
    return native::choose_projector(names, model).value_or("none");
  };
  EXPECT_EQ(chosen({"a.gguf", "b.gguf"}, "a.gguf"), "none");
  EXPECT_EQ(chosen({"a.gguf", "mmproj-Q8_0.gguf", "mmproj-F16.gguf", "mmproj-BF16.gguf"}, "a.gguf"),
            "mmproj-F16.gguf");
  EXPECT_EQ(chosen({"x/mmproj-F32.gguf", "x/mmproj-model-bf16.gguf"}, "x/a.gguf"),
            "x/mmproj-model-bf16.gguf");
  EXPECT_EQ(chosen({"a.gguf", "mmproj-b.gguf", "a.mmproj.gguf", "ab.mmproj.gguf"}, "/d/a.gguf"),
            "a.mmproj.gguf");
  EXPECT_EQ(chosen({"a.gguf", "ab-mmproj.gguf", "mmproj.txt"}, "a.gguf"), "none");
  EXPECT_EQ(chosen({"mmproj-2.gguf", "mmproj-1.gguf"}, ""), "mmproj-1.gguf");
  // The name of a model without its quantization, the longest one first.
  const std::vector<std::string> many = {"a.mmproj-f16.gguf", "a-b.mmproj-Q8_0.gguf",
                                         "ab.mmproj-f16.gguf", "mmproj-F16.gguf"};
  EXPECT_EQ(chosen(many, "a.Q4_K_M.gguf"), "a.mmproj-f16.gguf");
  EXPECT_EQ(chosen(many, "a-b-Q4_0.gguf"), "a-b.mmproj-Q8_0.gguf");
  EXPECT_EQ(chosen(many, "abc.gguf"), "mmproj-F16.gguf");
  EXPECT_EQ(chosen({"a.Q4_0.gguf", "a.mmproj-f16.gguf"}, ""), "a.mmproj-f16.gguf");
}

TEST(PictureSource, OtherUrlsNeedPermission) {
  const auto told = [](const std::string& url, const native::PictureUrls& allowed = {}) {
    const auto file = native::fetch_picture(url, allowed);
    return file.ok() ? std::string("ok")
                     : code_name(file.status().code()) + (": " + file.status().message());
  };
  const std::string refused =
      "NOT_SUPPORTED: a picture must be a data URL: this server fetches none from elsewhere";
  EXPECT_EQ(told("http://example.com/a.png"), refused);
  EXPECT_EQ(told("file:///etc/passwd"), refused);
  EXPECT_EQ(told("data:;base64,aGVsbG8="), "ok");
  const native::PictureUrls http{.http = true};
  for (const char* url : {"file:///etc/passwd", "ftp://example.com/a", "gopher://127.0.0.1/x"}) {
    EXPECT_TRUE(told(url, http).starts_with("INVALID_ARGUMENT: ")) << told(url, http);
  }
}

std::string fetched(const std::string& url, const io::GuardedFetch& guard) {
  const auto file = io::fetch_guarded(url, guard);
  if (!file.ok()) return code_name(file.status().code()) + (": " + file.status().message());
  return {file->begin(), file->end()};
}

TEST(PictureSource, FetchesWithinLimits) {
  std::atomic<int> asked{0};
  test::HttpTestServer server([&asked](const test::HttpRequest& request) {
    ++asked;
    test::HttpReply reply;
    reply.body = "12345678";
    if (request.target == "/absent") reply.status = 404;
    if (request.target == "/unannounced") reply.announce_length = false;
    if (request.target == "/stall") reply.stall_after = 2;
    if (request.target.starts_with("/to?")) {
      reply.status = 302;
      reply.headers.emplace_back("Location", request.target.substr(4));
    }
    return reply;
  });
  const std::string base = server.url("");
  // Without permission no request arrives, under no name of the address.
  const std::string port = base.substr(base.rfind(':'));
  for (const std::string host : {"127.0.0.1", "localhost", "0x7f.1", "2130706433", "[::1]",
                                 "[::ffff:127.0.0.1]", "0.0.0.0"}) {
    const std::string told = fetched("http://" + host + port, {});
    EXPECT_TRUE(told.starts_with("INVALID_ARGUMENT: ") || told.starts_with("NETWORK: "))
        << host << " " << told;
  }
  EXPECT_TRUE(fetched(base + "/a", {}).ends_with("leads to an address that is not public"));
  EXPECT_EQ(asked, 0);

  const io::GuardedFetch open{
      .max_bytes = 8, .timeout_ms = 5000, .allows = [](std::span<const uint8_t>) { return true; }};
  EXPECT_EQ(fetched(base + "/a", open), "12345678");
  EXPECT_EQ(fetched(base + "/unannounced", open), "12345678");
  EXPECT_EQ(fetched(base + "/to?/a", open), "12345678");
  EXPECT_TRUE(fetched(base + "/absent", open).starts_with("HTTP_STATUS: "));
  io::GuardedFetch small = open;
  small.max_bytes = 7;
  for (const char* path : {"/a", "/unannounced"}) {
    EXPECT_TRUE(fetched(base + path, small).ends_with("has more than 7 bytes")) << path;
  }
  io::GuardedFetch none = open;
  none.max_redirects = 0;
  EXPECT_TRUE(fetched(base + "/to?/a", none).starts_with("NETWORK: "));
  EXPECT_TRUE(fetched(base + "/to?file:///etc/passwd", open).starts_with("INVALID_ARGUMENT: "));
  io::GuardedFetch quick = open;
  quick.timeout_ms = 200;
  EXPECT_TRUE(fetched(base + "/stall", quick).starts_with("NETWORK: "));
  io::GuardedFetch cancelled = open;
  cancelled.cancelled = [] { return true; };
  EXPECT_TRUE(fetched(base + "/stall", cancelled).starts_with("ABORTED: "));
}

TEST(PictureSource, ARedirectIsJudgedByItsOwnAddress) {
  std::atomic<int> asked{0};
  test::HttpTestServer server([&asked](const test::HttpRequest& request) {
    ++asked;
    test::HttpReply reply;
    if (request.target.starts_with("/to?")) {
      reply.status = 302;
      reply.headers.emplace_back("Location", request.target.substr(4));
    }
    return reply;
  });
  std::vector<int> last_bytes;
  io::GuardedFetch guard;
  guard.allows = [&last_bytes](std::span<const uint8_t> address) {
    last_bytes.push_back(address.back());
    return address.back() == 1;  // 127.0.0.1
  };
  const std::string base = server.url("");
  const std::string elsewhere = "http://127.0.0.2" + base.substr(base.rfind(':')) + "/a";
  const std::string told = fetched(base + "/to?" + elsewhere, guard);
  EXPECT_TRUE(told.ends_with("leads to an address that is not public")) << told;
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(last_bytes, (std::vector<int>{1, 2}));
}

}  // namespace
}  // namespace sluice
