// s3:// and gs:// (its S3 interface): where an object lies, how a request is signed (AWS Signature
// Version 4), and what a folder holds.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/private_api.h"
#include "pipeline/readers/url.h"
#include "pipeline/remote/credentials.h"
#include "pipeline/remote/fetch.h"

namespace millrace::pipeline {

// Signing.

struct SigningScope {
  std::string region;
  std::string service = "s3";
  std::string time{};  ///< "20150830T123600Z"
};

struct SignedParts {
  std::string method = "GET";
  std::string path;                              ///< percent-encoded
  std::string query;                             ///< percent-encoded
  std::map<std::string, std::string> headers{};  ///< to be signed, by names in lower case
  std::string body_hash;                         ///< SHA-256 in hexadecimal digits
};

/// Returns the value of the header Authorization. Path and query are encoded canonically first.
MILLRACE_PRIVATE_API std::string sigv4_authorization(const SignedParts& parts,
                                                     const SigningScope& scope,
                                                     const Credentials& credentials);

/// Returns seconds since 1970 as "20150830T123600Z".
MILLRACE_PRIVATE_API std::string sigv4_time(std::int64_t seconds);

// Access.

struct S3Options {
  S3Settings settings{};
  /// Returns the credentials that are valid now, or none. Throws if it cannot say.
  std::function<Credentials()> find{};
  /// Returns seconds since 1970.
  std::function<std::int64_t()> now{};
  /// Receives a warning when credentials cannot be renewed. May be empty.
  std::function<void(const std::string&)> warn{};
};

/// Signs requests to s3:// and gs://. Renews credentials before they expire, and keeps the old ones
/// if that fails; follows a bucket to its region; corrects the clock by the server's.
MILLRACE_PRIVATE_API std::unique_ptr<Access> s3_access(S3Options options);

/// Returns the access to a bucket as the environment describes it. Throws UsageError for settings
/// that mean nothing, and with the first request if there are no credentials.
MILLRACE_PRIVATE_API std::unique_ptr<Access> s3_access(
    const Url& folder, const std::atomic<bool>* stop,
    const std::function<void(const std::string&)>& warn);

// Listing.

struct S3Object {
  std::string name;  ///< relative to the listed folder
  std::uint64_t size = 0;
  std::string etag;  ///< with its quotes
};

struct S3Page {
  std::string bucket_prefix;         ///< what was asked for
  std::vector<S3Object> objects;     ///< with whole keys as names
  std::vector<std::string> folders;  ///< whole keys, with their slashes
  std::string next;                  ///< continuation token; empty: the last page
};

/// Parses an answer to ListObjectsV2. Throws DataError for anything else, and for one that
/// contradicts itself.
MILLRACE_PRIVATE_API S3Page parse_s3_page(std::string_view xml);

/// Lists the objects of a folder and of those of its folders for which `enter` returns true, sorted
/// bytewise, over as many requests as it takes. Throws as Fetcher::fetch(), and FetchError for a
/// list that never ends.
MILLRACE_PRIVATE_API std::vector<S3Object> list_s3_folder(
    Fetcher& fetcher, const Url& folder, const std::function<bool(const std::string&)>& enter);

}  // namespace millrace::pipeline
