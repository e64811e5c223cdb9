// Where the credentials and settings of S3 come from: the environment, the files that the AWS
// command line shares, and the metadata service of a cloud machine. Nothing here prints a secret.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/private_api.h"
#include "pipeline/remote/http.h"

namespace millrace::pipeline {

struct Credentials {
  std::string id{};  ///< access key; empty: none
  std::string secret{};
  std::string token{};       ///< of a session; empty: none
  std::int64_t expires = 0;  ///< seconds since 1970; 0: not known
  std::string source{};      ///< where they come from, for messages

  bool operator==(const Credentials&) const = default;
};

/// Sections of a file of profiles, with their keys. Nested settings, which are indented, are left
/// out.
using Profiles = std::map<std::string, std::map<std::string, std::string>>;

/// Parses such a file. Lines that are neither section, setting nor comment are skipped.
MILLRACE_PRIVATE_API Profiles parse_profiles(std::string_view text);

/// Finds credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), else the
/// profile AWS_PROFILE (or "default") of AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE, else,
/// with `metadata` and without AWS_EC2_METADATA_DISABLED, those of the machine's role. Returns none
/// if there are none. Throws UsageError for a profile that is missing, incomplete, or needs another
/// program, and for a file that cannot be read.
MILLRACE_PRIVATE_API Credentials find_credentials(HttpClient& client, bool metadata,
                                                  const std::atomic<bool>* stop);

/// Reads the answer of the metadata service on a role. Returns none for any other text.
MILLRACE_PRIVATE_API Credentials credentials_in_json(std::string_view text);

struct S3Settings {
  std::string region = "us-east-1";
  std::string endpoint;    ///< "https://HOST[:PORT]"; empty: AWS's
  bool in_host = false;    ///< a custom endpoint has the bucket in the host's name
  bool anonymous = false;  ///< requests are not signed
};

/// Reads AWS_REGION, AWS_DEFAULT_REGION, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's
/// `region` and `endpoint_url`, MILLRACE_S3_ADDRESSING and MILLRACE_S3_ANONYMOUS. Throws UsageError
/// for values that mean nothing.
MILLRACE_PRIVATE_API S3Settings s3_settings();

/// Returns whether a text can be the name of a region: what a server says becomes part of a host's
/// name.
MILLRACE_PRIVATE_API bool is_region(std::string_view text);

/// Returns the endpoint "https://HOST[:PORT]" without a default port, or throws UsageError;
/// `variable` is for its message.
MILLRACE_PRIVATE_API std::string parsed_endpoint(const std::string& text,
                                                 const std::string& variable);

}  // namespace millrace::pipeline
