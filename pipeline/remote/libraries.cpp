// Opens libcurl and libcrypto.
#include "pipeline/remote/libraries.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include "millrace/error.h"

namespace millrace::pipeline {
namespace {

class Library {
 public:
  /// `use` is for messages; `package` is Debian's.
  Library(const char* use, const char* file, const char* package)
      : use_(use), file_(file), package_(package), handle_(dlopen(file, RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ != nullptr) return;
    const char* reason = dlerror();
    throw RunError(
        fmt::format("{} needs {}: {}", use, file, reason != nullptr ? reason : "not found"),
        fmt::format("install it: apt-get install {}", package));
  }

  template <class Function>
  void find(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(dlsym(handle_, name));
    if (function == nullptr)
      throw RunError(fmt::format("{} is too old for {}: it has no {}", file_, use_, name),
                     fmt::format("update the package {}", package_));
  }

 private:
  const char* use_;
  const char* file_;
  const char* package_;
  void* handle_;  ///< never closed: its threads and handlers may outlive any object
};

Curl open_curl() {
  const Library library("remote data", "libcurl.so.4", "libcurl4");
  CURLcode (*global_init)(long) = nullptr;
  library.find(global_init, "curl_global_init");
  if (global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
    throw RunError("libcurl cannot be initialised", "check the installation of libcurl4");
  Curl all{};
  library.find(all.easy_init, "curl_easy_init");
  library.find(all.easy_cleanup, "curl_easy_cleanup");
  library.find(all.easy_reset, "curl_easy_reset");
  library.find(all.easy_setopt, "curl_easy_setopt");
  library.find(all.easy_getinfo, "curl_easy_getinfo");
  library.find(all.easy_strerror, "curl_easy_strerror");
  library.find(all.multi_init, "curl_multi_init");
  library.find(all.multi_cleanup, "curl_multi_cleanup");
  library.find(all.multi_add_handle, "curl_multi_add_handle");
  library.find(all.multi_remove_handle, "curl_multi_remove_handle");
  library.find(all.multi_perform, "curl_multi_perform");
  library.find(all.multi_poll, "curl_multi_poll");
  library.find(all.multi_info_read, "curl_multi_info_read");
  library.find(all.slist_append, "curl_slist_append");
  library.find(all.slist_free_all, "curl_slist_free_all");
  return all;
}

Crypto open_crypto() {
  const Library library("SHA-256", "libcrypto.so.3", "libssl3");
  Crypto all{};
  library.find(all.md_new, "EVP_MD_CTX_new");
  library.find(all.md_free, "EVP_MD_CTX_free");
  library.find(all.sha256, "EVP_sha256");
  library.find(all.digest_init, "EVP_DigestInit_ex");
  library.find(all.digest_update, "EVP_DigestUpdate");
  library.find(all.digest_final, "EVP_DigestFinal_ex");
  return all;
}

}  // namespace

const Curl& curl() {
  static const Curl all = open_curl();
  return all;
}

const Crypto& crypto() {
  static const Crypto all = open_crypto();
  return all;
}

}  // namespace millrace::pipeline
