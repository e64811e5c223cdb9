// A real nginx on 127.0.0.1.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <string>

namespace millrace::program_test {

/// Returns a port of 127.0.0.1 that the kernel chooses, or 0.
int free_port();

/// An nginx that serves a folder at ports that the kernel has chosen, and ends with this process.
class Nginx {
 public:
  static bool is_installed();

  /// With `tls`, a folder that holds cert.pem and key.pem, also serves https with HTTP/2 at a port
  /// of its own, where /moved/... redirects to http.
  explicit Nginx(const std::filesystem::path& root, const std::string& tls = {});
  ~Nginx();
  Nginx(const Nginx&) = delete;
  Nginx& operator=(const Nginx&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/"; }
  std::string secure_url() const {
    return "https://127.0.0.1:" + std::to_string(secure_port_) + "/";
  }
  /// Returns how many requests it has answered that contain `text`, such as "a.tar HTTP/1.1". Waits
  /// for `least` of them, because it writes its log behind the answers.
  std::size_t requests(const std::string& text, std::size_t least) const;

 private:
  bool start(const std::filesystem::path& root);

  std::string folder_;
  std::string tls_;
  int port_ = 0;
  int secure_port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace millrace::program_test
