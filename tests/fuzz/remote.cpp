// Fuzzes what a server or a user may send: header lines, Retry-After, addresses, redirections,
// lists of buckets, profiles and metadata.
#include "pipeline/readers/url.h"
#include "pipeline/remote/credentials.h"
#include "pipeline/remote/http.h"
#include "pipeline/remote/s3.h"
#include "pipeline/remote/xml.h"
#include "tests/fuzz/target.h"

namespace millrace::fuzz {

Corpus corpus() {
  return {
      {bytes_of("HTTP/1.1 206 Partial Content\r\nETag: \"x\"\r\nContent-Range: bytes 5-9/10\r\n"
                "Content-Length: 5\r\nRetry-After: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
                "Location: //other/a?b\r\n"),
       bytes_of("https://host:80/a%20b/?q=1"), bytes_of("s3://bucket/prefix"),
       bytes_of("http://me:secret@host/a"),
       bytes_of("<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><IsTruncated>true"
                "</IsTruncated><NextContinuationToken>n</NextContinuationToken><Contents><Key>a/x"
                "&amp;&#233;.tar</Key><Size>7</Size><ETag>&quot;e&quot;</ETag></Contents>"
                "<CommonPrefixes><Prefix>a/b/</Prefix></CommonPrefixes></ListBucketResult>"),
       bytes_of("[default]\naws_access_key_id = A # mine\n[profile x]\nregion=eu-west-1\n"),
       bytes_of("{\"Code\":\"Success\",\"AccessKeyId\":\"i\",\"SecretAccessKey\":\"s\","
                "\"Expiration\":\"2026-11-23T09:00:00Z\"}")},
      {"<Contents>", "</Contents>", "<Key>", "</",    "/>",    "&#x",     ";",
       "<!--",       "-->",         "[x]\n", "s3://", "gs://", "HTTP/2 ", "Content-Range: bytes ",
       "://",        "http",        "@",     "%2F",   "?",     "#",       "\r\n",
       "*"}};
}

}  // namespace millrace::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  using pipeline::Url;
  const std::string_view text = fuzz::text_of(data, size);
  pipeline::HttpHeader header;
  for (std::string_view left = text; !left.empty();) {
    const std::size_t end = std::min(left.find('\n'), left.size() - 1);
    pipeline::add_header_line(header, left.substr(0, end + 1));
    left.remove_prefix(end + 1);
  }
  if (header.range) {
    fuzz::require(header.range->first <= header.range->last, "a range has an order");
    fuzz::require(!header.range->total || header.range->last < *header.range->total,
                  "a range lies in its object");
  }
  const auto wait = pipeline::retry_after_s(header.retry_after, 0);
  fuzz::require(!wait || *wait >= 0, "a wait is not negative");
  fuzz::require(pipeline::percent_decoded(pipeline::percent_encoded(text)) == text,
                "encoding is undone by decoding");
  fuzz::require(pipeline::redacted(text).find('\n') == std::string::npos, "a name is one line");
  fuzz::accepts(Exit::data, [&] {
    const Url url = Url::parse(text);
    fuzz::require(url.path.starts_with('/'), "a path begins with a slash");
    fuzz::require(url.request().find_first_of(" \r\n") == std::string::npos,
                  "a request holds no blank");
    if (url.is_bucket()) {
      const std::string key = pipeline::percent_decoded(url.path);
      fuzz::require(Url::parse("s3://bucket" + key).path == url.path, "a key is kept");
    } else {
      fuzz::require(Url::parse(url.request()).request() == url.request(), "parsing is idempotent");
    }
  });
  fuzz::accepts(Exit::data, [&] { Url::parse("http://host/a/b").redirected(text); });
  fuzz::accepts(Exit::data, [&] {
    for (const pipeline::S3Object& one : pipeline::parse_s3_page(text).objects)
      fuzz::require(!one.name.empty(), "an object has a name");
  });
  pipeline::xml_text(text, "/Error/Code");
  for (const auto& [name, section] : pipeline::parse_profiles(text))
    for (const auto& [key, value] : section)
      fuzz::require(value.find('\n') == std::string::npos, "a value is one line");
  const pipeline::Credentials found = pipeline::credentials_in_json(text);
  fuzz::require(found.id.empty() == found.secret.empty(), "keys come in pairs");
  return 0;
}
