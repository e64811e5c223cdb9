// Parses and prints addresses.
#include "pipeline/readers/url.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/ascii.h"
#include "base/text.h"
#include "millrace/error.h"

namespace millrace::pipeline {
namespace {

constexpr std::array<std::string_view, 4> kSchemes{"gs", "http", "https", "s3"};
/// Scheme that can only be meant as an address, but is not read.
constexpr std::string_view kOtherScheme = "ftp";

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool is_escape(std::string_view text, std::size_t at) {
  return at + 2 < text.size() && hex_digit(text[at + 1]) >= 0 && hex_digit(text[at + 2]) >= 0;
}

/// Encodes what an address must not hold and leaves the rest as it was given.
std::string cleaned(std::string_view path) {
  constexpr std::string_view kAllowed = "/!$&'()*+,;=:@[]{}|^`\"<>\\";
  constexpr std::string_view kEncoded = "{}|^`\"<>\\[]";
  std::string out;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const char c = path[i];
    const bool plain = is_unreserved(c) || (kAllowed.find(c) != std::string_view::npos &&
                                            kEncoded.find(c) == std::string_view::npos);
    if (plain || (c == '%' && is_escape(path, i))) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

bool is_host(std::string_view host) {
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return is_unreserved(c) || c == ':' || c == '[' || c == ']';
  });
}

bool is_bucket_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), is_unreserved);
}

[[noreturn]] void refuse(std::string_view path, const std::string& reason) {
  throw DataError(fmt::format("{}: {}", redacted(path), reason),
                  "data.path=https://HOST/FOLDER/, s3://BUCKET/FOLDER/ or gs://BUCKET/FOLDER/");
}

}  // namespace

bool is_remote(std::string_view path) {
  const std::size_t end = path.find("://");
  if (end == std::string_view::npos) return false;
  const std::string scheme = base::lower(path.substr(0, end));
  return std::find(kSchemes.begin(), kSchemes.end(), scheme) != kSchemes.end() ||
         scheme == kOtherScheme;
}

std::string percent_encoded(std::string_view text, bool keep_slashes) {
  std::string out;
  for (const char c : text) {
    if (is_unreserved(c) || (c == '/' && keep_slashes)) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && is_escape(text, i)) {
      out += static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

Url Url::parse(std::string_view text) {
  const std::size_t colon = text.find("://");
  Url url;
  if (colon != std::string_view::npos) url.scheme = base::lower(text.substr(0, colon));
  if (std::find(kSchemes.begin(), kSchemes.end(), url.scheme) == kSchemes.end())
    refuse(text, "unsupported address: only http, https, s3 and gs are read");
  std::string_view rest = text.substr(colon + 3);
  if (!url.is_bucket()) rest = rest.substr(0, rest.find('#'));
  const std::size_t end = rest.find_first_of("/?");
  const std::string_view authority = rest.substr(0, end);
  if (authority.find('@') != std::string_view::npos)
    throw DataError(fmt::format("{}: the address holds a user's name or a password, which a run "
                                "would record",
                                redacted(text)),
                    url.is_bucket() ? "leave it out and set AWS_ACCESS_KEY_ID and "
                                      "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
                                    : "leave it out and set MILLRACE_REMOTE_AUTHORIZATION, for "
                                      "example to \"Basic ...\" or \"Bearer ...\"");
  if (url.is_bucket() ? !is_bucket_name(authority) : !is_host(authority))
    refuse(text, url.is_bucket() ? "the address names no bucket" : "the address names no host");
  url.host = url.is_bucket() ? std::string(authority) : base::lower(authority);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end);
  const std::size_t question = rest.find('?');
  const std::string_view path = rest.substr(0, question);
  url.path = path.empty() ? "/" : url.is_bucket() ? percent_encoded(path) : cleaned(path);
  if (question != std::string_view::npos) {
    for (const char c : rest.substr(question + 1)) {
      if (static_cast<unsigned char>(c) <= ' ' || c == '\x7f') {
        url.query += fmt::format("%{:02X}", static_cast<unsigned char>(c));
      } else {
        url.query += c;
      }
    }
  }
  return url;
}

std::string Url::text() const {
  return endpoint() + (is_bucket() ? base::printable(percent_decoded(path)) : path);
}

Url Url::file(std::string_view name) const {
  Url url = *this;
  url.path = (path.ends_with('/') ? path : path + "/") + percent_encoded(name);
  return url;
}

Url Url::redirected(std::string_view location) const {
  if (location.find("://") != std::string_view::npos) return parse(location);
  if (location.starts_with("//")) return parse(scheme + ":" + std::string(location));
  if (location.starts_with('/')) return parse(endpoint() + std::string(location));
  return parse(endpoint() + path.substr(0, path.rfind('/') + 1) + std::string(location));
}

std::string redacted(std::string_view path) {
  if (!is_remote(path)) return base::printable(path);
  const std::size_t begin = path.find("://") + 3;
  const std::size_t end = std::min(path.find_first_of("/?#", begin), path.size());
  const std::size_t at = path.substr(0, end).rfind('@');
  std::string out(path.substr(0, begin));
  if (at != std::string_view::npos && at >= begin) {
    out += "***@";
    out += path.substr(at + 1, end - at - 1);
  } else {
    const std::string_view host = path.substr(begin, end - begin);
    const std::size_t colon = host.starts_with('[') ? host.npos : host.find(':');
    // A ':' begins a port, or part of a password that holds a '/'.
    const bool port =
        colon == host.npos || host.find_first_not_of("0123456789", colon + 1) == host.npos;
    if (!port) return out + "***";
    out += host;
  }
  const std::size_t query = std::min(path.find_first_of("?#", end), path.size());
  out += path.substr(end, query - end);
  if (query < path.size()) out += "?***";
  return base::printable(out);
}

}  // namespace millrace::pipeline
