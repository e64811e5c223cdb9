// Addresses of remote data. A Url prints without what may be secret: a user's name, a password and
// the query never appear in text().
#pragma once

#include <string>
#include <string_view>

#include "base/private_api.h"

namespace millrace::pipeline {

/// Returns whether a data.path is an address: it begins with http://, https://, s3://, gs://, or
/// ftp://, which Url::parse() refuses; in upper or lower case.
MILLRACE_PRIVATE_API bool is_remote(std::string_view path);

/// Percent-encodes a path for a request: all bytes but letters, digits, '-', '.', '_', '~' and '/'.
/// A '/' is encoded too unless `keep_slashes`.
MILLRACE_PRIVATE_API std::string percent_encoded(std::string_view text, bool keep_slashes = true);
/// Decodes %XX; text with a '%' that no two hexadecimal digits follow stays as it is.
MILLRACE_PRIVATE_API std::string percent_decoded(std::string_view text);

struct MILLRACE_PRIVATE_API Url {
  std::string scheme;  ///< "http", "https", "s3" or "gs"
  std::string host;    ///< with its port if one was given; of s3 and gs, the bucket
  std::string path;    ///< encoded, begins with '/'
  std::string query;   ///< encoded, without the '?'; may hold a signature

  /// Parses an address as a user or a server gives it. Characters of the path that a request must
  /// not hold are encoded; %XX stays. The path of s3:// and gs:// is a key as it is, so that all of
  /// it is encoded. Throws DataError for text that is not an address, another scheme,
  /// or a user's name or password, without repeating these.
  static Url parse(std::string_view text);

  bool is_bucket() const { return scheme == "s3" || scheme == "gs"; }
  /// Returns the address without its query, as a user would write it; safe to print and to record.
  std::string text() const;
  /// Returns the address of a request. It may hold a secret.
  std::string request() const { return endpoint() + path + (query.empty() ? "" : "?" + query); }
  /// Returns scheme and host: where a connection leads.
  std::string endpoint() const { return scheme + "://" + host; }
  /// Returns the address of a file by its path relative to this one, which is a folder. The name is
  /// encoded; the query is kept.
  Url file(std::string_view name) const;
  /// Returns the address that a Location header names, without this one's query. Throws DataError
  /// for one that is not an http(s) address.
  Url redirected(std::string_view location) const;
};

/// Returns `path` as it may be printed: without user, password and query.
MILLRACE_PRIVATE_API std::string redacted(std::string_view path);

}  // namespace millrace::pipeline
