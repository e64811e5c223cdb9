// Finds credentials and settings of S3.
#include "pipeline/remote/credentials.h"

#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/folder.h"
#include "base/text.h"
#include "millrace/error.h"

namespace millrace::pipeline {
namespace {

std::string setting(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool is_on(const char* name) {
  const std::string value = setting(name);
  return value == "1" || value == "true" || value == "True" || value == "TRUE";
}

std::string_view stripped(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

/// A line end would begin another header.
void require_one_line(const Credentials& found) {
  for (const std::string* text : {&found.id, &found.secret, &found.token})
    if (std::any_of(text->begin(), text->end(),
                    [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '\x7f'; }))
      throw UsageError(
          fmt::format("the credentials of {} hold a blank or a line end", found.source),
          "write each in one word");
}

// Shared files.

struct SharedFile {
  std::string path;
  Profiles profiles{};
};

SharedFile read_shared(const char* name, const char* usual) {
  SharedFile file{setting(name)};
  if (file.path.empty()) {
    const std::string home = setting("HOME");
    if (home.empty()) return file;
    file.path = home + usual;
  }
  if (!base::exists(file.path)) return file;
  std::ifstream in(file.path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  if (!in.is_open() || in.bad())
    throw UsageError(fmt::format("{} cannot be read", base::printable(file.path)),
                     fmt::format("check its mode and owner, and {}", name));
  file.profiles = parse_profiles(text);
  return file;
}

/// The profile in use, over both files.
class Profile {
 public:
  Profile()
      : name_(setting("AWS_PROFILE")),
        secrets_(read_shared("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials")),
        config_(read_shared("AWS_CONFIG_FILE", "/.aws/config")) {
    const bool named = !name_.empty();
    if (!named) name_ = "default";
    const auto section = secrets_.profiles.find(name_);
    if (section != secrets_.profiles.end()) values_ = section->second;
    for (const std::string& one : {"profile " + name_, name_}) {
      const auto more = config_.profiles.find(one);
      if (more == config_.profiles.end() || (one == name_ && name_ != "default")) continue;
      found_ = true;
      values_.insert(more->second.begin(), more->second.end());
    }
    found_ |= section != secrets_.profiles.end();
    if (named && !found_)
      throw UsageError(fmt::format("AWS_PROFILE={}: neither {} nor {} has such a profile",
                                   base::printable(name_), base::printable(secrets_.path),
                                   base::printable(config_.path)),
                       "check AWS_PROFILE, AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE");
  }

  std::string at(const std::string& key) const {
    const auto value = values_.find(key);
    return value != values_.end() ? value->second : "";
  }
  std::string source() const {
    return fmt::format("profile {} in {}", base::printable(name_), base::printable(secrets_.path));
  }

  Credentials credentials() const {
    Credentials found{at("aws_access_key_id"), at("aws_secret_access_key"), at("aws_session_token"),
                      0, source()};
    if (!found.id.empty() && !found.secret.empty()) return found;
    if (!found.id.empty() || !found.secret.empty())
      throw UsageError(fmt::format("{} has only one of aws_access_key_id and "
                                   "aws_secret_access_key",
                                   source()),
                       "write both");
    for (const char* other : {"role_arn", "sso_session", "sso_account_id", "credential_process",
                              "login_session", "web_identity_token_file"})
      if (!at(other).empty())
        throw UsageError(
            fmt::format("{} takes its credentials from {}, which is not read here", source(),
                        other),
            fmt::format("eval \"$(aws configure export-credentials --format env --profile {})\"",
                        base::printable(name_)));
    return {};
  }

 private:
  std::string name_;
  SharedFile secrets_, config_;
  std::map<std::string, std::string> values_;
  bool found_ = false;
};

Credentials from_environment() {
  Credentials found{setting("AWS_ACCESS_KEY_ID"), setting("AWS_SECRET_ACCESS_KEY"),
                    setting("AWS_SESSION_TOKEN"), 0, "the environment"};
  if (found.id.empty() && found.secret.empty()) return {};
  if (found.id.empty() || found.secret.empty())
    throw UsageError("only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set",
                     "set both, or neither to use a profile");
  return found;
}

// Metadata of a cloud machine (IMDSv2).

constexpr const char* kMetadata = "http://169.254.169.254";
constexpr const char* kMetadataVariable = "AWS_EC2_METADATA_SERVICE_ENDPOINT";
constexpr const char* kRoles = "latest/meta-data/iam/security-credentials/";
constexpr std::chrono::milliseconds kMetadataStall{1000};
constexpr int kMetadataAttempts = 2;
constexpr std::size_t kMaxMetadata = 1 << 16;

class Metadata {
 public:
  Metadata(HttpClient& client, const std::string& endpoint, const std::atomic<bool>* stop)
      : client_(client), home_(Url::parse(endpoint + "/")), stop_(stop) {}

  Credentials credentials() {
    const std::string token =
        ask("latest/api/token", "PUT", {"X-aws-ec2-metadata-token-ttl-seconds", "21600"});
    if (token.empty()) return {};
    const std::pair<std::string, std::string> key{"X-aws-ec2-metadata-token", token};
    const std::string roles = ask(kRoles, "GET", key);
    const std::string role(stripped(roles.substr(0, roles.find('\n'))));
    if (role.empty()) return {};
    Credentials found = credentials_in_json(ask(kRoles + role, "GET", key));
    found.source = "this machine's role";
    return found;
  }

 private:
  /// Returns the body of an answer 200, or nothing.
  std::string ask(const std::string& path, const std::string& method,
                  const std::pair<std::string, std::string>& header) {
    for (int attempt = 0; attempt < kMetadataAttempts; ++attempt) {
      std::string body;
      HttpRequest request{home_.file(path)};
      request.method = method;
      request.direct = true;
      request.stall = kMetadataStall;
      request.stop = stop_;
      request.headers.push_back(header);
      const HttpResult result =
          client_.perform(request, {{}, [&](const char* bytes, std::size_t size) {
                                      body.append(bytes, size);
                                      return body.size() <= kMaxMetadata;
                                    }});
      if (result.kind == HttpResult::Kind::stopped) return {};
      if (result.kind != HttpResult::Kind::done) continue;
      const bool one_line = method != "PUT" || body.find_first_of("\r\n") == body.npos;
      if (result.header.status == 200 && one_line) return body;
      if (result.header.status < 500) return {};
    }
    return {};
  }

  HttpClient& client_;
  Url home_;
  const std::atomic<bool>* stop_;
};

}  // namespace

Profiles parse_profiles(std::string_view text) {
  Profiles all;
  std::map<std::string, std::string>* section = nullptr;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string_view content = stripped(line);
    if (content.empty() || content.front() == '#' || content.front() == ';') continue;
    if (content.front() == '[') {
      const std::size_t close = content.find(']');
      section = nullptr;
      if (close != content.npos)
        section = &all[std::string(stripped(content.substr(1, close - 1)))];
      continue;
    }
    const std::size_t equals = content.find('=');
    if (section == nullptr || equals == content.npos || line.front() == ' ' || line.front() == '\t')
      continue;
    std::string_view value = content.substr(equals + 1);
    for (const std::string_view comment : {" #", " ;", "\t#", "\t;"})
      value = value.substr(0, value.find(comment));
    (*section)[std::string(stripped(content.substr(0, equals)))] = stripped(value);
  }
  return all;
}

Credentials credentials_in_json(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto word = [&](const char* key) {
    const bool there = json.is_object() && json.contains(key) && json[key].is_string();
    return there ? json[key].get<std::string>() : std::string();
  };
  if (const std::string code = word("Code"); !code.empty() && code != "Success") return {};
  Credentials found{word("AccessKeyId"), word("SecretAccessKey"), word("Token")};
  if (found.id.empty() || found.secret.empty()) return {};
  tm parts{};
  const std::string expires = word("Expiration");
  if (strptime(expires.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) != nullptr)
    found.expires = timegm(&parts);
  return found;
}

Credentials find_credentials(HttpClient& client, bool metadata, const std::atomic<bool>* stop) {
  Credentials found = from_environment();
  if (found.id.empty()) found = Profile().credentials();
  if (found.id.empty() && metadata && !is_on("AWS_EC2_METADATA_DISABLED")) {
    std::string endpoint = setting(kMetadataVariable);
    endpoint = parsed_endpoint(endpoint.empty() ? kMetadata : endpoint, kMetadataVariable);
    found = Metadata(client, endpoint, stop).credentials();
    if (stop != nullptr && stop->load())
      throw Error(Exit::interrupted, "interrupted while credentials were looked for");
  }
  require_one_line(found);
  return found;
}

// Settings.

bool is_region(std::string_view text) {
  constexpr std::size_t kMax = 32;
  return !text.empty() && text.size() <= kMax && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

std::string parsed_endpoint(const std::string& text, const std::string& variable) {
  try {
    Url url = Url::parse(text);
    const bool remote = url.scheme == "http" || url.scheme == "https";
    if (remote && url.query.empty() && url.path == "/") {
      const std::string usual = url.scheme == "https" ? ":443" : ":80";
      // libcurl leaves a default port out of the header Host, which is signed.
      if (url.host.ends_with(usual)) url.host.resize(url.host.size() - usual.size());
      return url.endpoint();
    }
  } catch (const DataError&) {  // described below
  }
  // Without a scheme, a password in it would not be recognized.
  const bool shown = text.find("://") != text.npos || text.find('@') == text.npos;
  throw UsageError(fmt::format("{}: {} is not the address of a server", variable,
                               shown ? redacted(text) : "what it holds"),
                   "write it as https://HOST or http://HOST:PORT, without a path");
}

S3Settings s3_settings() {
  S3Settings settings;
  const Profile profile;
  const auto first_of = [](std::initializer_list<std::string> values) {
    for (const std::string& value : values)
      if (!value.empty()) return value;
    return std::string();
  };
  const std::string region = first_of({setting("AWS_REGION"), setting("AWS_DEFAULT_REGION"),
                                       profile.at("region"), settings.region});
  if (!is_region(region))
    throw UsageError(
        fmt::format("AWS_REGION={} is not the name of a region", base::printable(region)),
        "write it like us-east-1");
  settings.region = region;
  const bool ignored = is_on("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
  const std::string endpoint =
      ignored ? ""
              : first_of({setting("AWS_ENDPOINT_URL_S3"), setting("AWS_ENDPOINT_URL"),
                          profile.at("endpoint_url")});
  if (!endpoint.empty()) settings.endpoint = parsed_endpoint(endpoint, "AWS_ENDPOINT_URL_S3");
  const std::string addressing = setting("MILLRACE_S3_ADDRESSING");
  if (!addressing.empty() && addressing != "path" && addressing != "virtual")
    throw UsageError(
        fmt::format("MILLRACE_S3_ADDRESSING={}: not path or virtual", base::printable(addressing)),
        "leave it unset: AWS has the bucket in the host's name, other servers in the path");
  settings.in_host = addressing == "virtual";
  settings.anonymous = is_on("MILLRACE_S3_ANONYMOUS");
  return settings;
}

}  // namespace millrace::pipeline
