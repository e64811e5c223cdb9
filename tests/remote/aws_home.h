// An environment in which nothing of this machine's own credentials is left.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include "pipeline/remote/credentials.h"
#include "tests/data/support.h"

namespace millrace::test {

/// Sets a variable of the environment for a while.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name); old != nullptr) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (old_) {
      setenv(name_, old_->c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

/// An environment without credentials, whose files a test writes.
struct Home {
  Home()
      : secrets("AWS_SHARED_CREDENTIALS_FILE", folder.path("credentials")),
        config("AWS_CONFIG_FILE", folder.path("config")) {
    write("credentials", "");
    write("config", "");
  }
  void write(const std::string& name, const std::string& text) {
    folder.write(name, Bytes(text.begin(), text.end()));
  }
  pipeline::Credentials find(bool metadata = false) {
    return pipeline::find_credentials(client, metadata, nullptr);
  }

  TempFolder folder;
  Variable id{"AWS_ACCESS_KEY_ID", ""}, secret{"AWS_SECRET_ACCESS_KEY", ""},
      token{"AWS_SESSION_TOKEN", ""}, profile{"AWS_PROFILE", ""}, region{"AWS_REGION", ""},
      other_region{"AWS_DEFAULT_REGION", ""}, endpoint{"AWS_ENDPOINT_URL", ""},
      s3_endpoint{"AWS_ENDPOINT_URL_S3", ""}, disabled{"AWS_EC2_METADATA_DISABLED", "true"},
      ignored{"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", ""}, addressing{"MILLRACE_S3_ADDRESSING", ""},
      anonymous{"MILLRACE_S3_ANONYMOUS", ""}, google{"CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", ""};
  Variable secrets, config;
  pipeline::HttpClient client;
};

}  // namespace millrace::test
