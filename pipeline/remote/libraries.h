// libcurl and libcrypto, opened when the first remote set is. Programs that read local data neither
// load nor need them.
#pragma once

#include <curl/curl.h>
#include <openssl/evp.h>

namespace millrace::pipeline {

/// The functions of libcurl that are used. Their names leave out "curl_": curl's headers define
/// macros of the full names.
struct Curl {
  CURL* (*easy_init)();
  void (*easy_cleanup)(CURL*);
  void (*easy_reset)(CURL*);
  CURLcode (*easy_setopt)(CURL*, CURLoption, ...);
  CURLcode (*easy_getinfo)(CURL*, CURLINFO, ...);
  const char* (*easy_strerror)(CURLcode);
  CURLM* (*multi_init)();
  CURLMcode (*multi_cleanup)(CURLM*);
  CURLMcode (*multi_add_handle)(CURLM*, CURL*);
  CURLMcode (*multi_remove_handle)(CURLM*, CURL*);
  CURLMcode (*multi_perform)(CURLM*, int* running);
  CURLMcode (*multi_poll)(CURLM*, curl_waitfd*, unsigned int, int timeout_ms, int* ready);
  CURLMsg* (*multi_info_read)(CURLM*, int* left);
  curl_slist* (*slist_append)(curl_slist*, const char*);
  void (*slist_free_all)(curl_slist*);
};

/// Returns libcurl's functions. Throws RunError if the library cannot be opened.
const Curl& curl();

/// The functions of libcrypto that are used.
struct Crypto {
  EVP_MD_CTX* (*md_new)();
  void (*md_free)(EVP_MD_CTX*);
  const EVP_MD* (*sha256)();
  int (*digest_init)(EVP_MD_CTX*, const EVP_MD*, ENGINE*);
  int (*digest_update)(EVP_MD_CTX*, const void*, std::size_t);
  int (*digest_final)(EVP_MD_CTX*, unsigned char*, unsigned int*);
};

/// Returns libcrypto's functions. Throws RunError if the library cannot be opened.
const Crypto& crypto();

}  // namespace millrace::pipeline
