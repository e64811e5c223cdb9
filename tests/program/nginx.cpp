// Starts and ends an nginx.
#include "tests/program/nginx.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

#include "tests/program/program.h"

namespace millrace::program_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNginx = "/usr/sbin/nginx";

/// A socket and an address of 127.0.0.1.
struct LocalSocket {
  explicit LocalSocket(int port) {
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  ~LocalSocket() { close(file); }
  LocalSocket(const LocalSocket&) = delete;
  LocalSocket& operator=(const LocalSocket&) = delete;
  sockaddr* where() { return reinterpret_cast<sockaddr*>(&address); }

  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  socklen_t size = sizeof address;
};

/// Returns the whole answer to a request for `path` at a port; empty if nobody answers.
std::string answer_at(int port, const std::string& path) {
  LocalSocket local(port);
  // A stranger at this port may never answer.
  const timeval most{5, 0};
  setsockopt(local.file, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  if (connect(local.file, local.where(), local.size) != 0) return {};
  const std::string request = fmt::format("GET {} HTTP/1.0\r\n\r\n", path);
  if (send(local.file, request.data(), request.size(), MSG_NOSIGNAL) != std::ssize(request))
    return {};
  std::string answer;
  char bytes[4096];
  constexpr std::size_t kMax = 1 << 16;
  while (answer.size() < kMax) {
    const ssize_t count = recv(local.file, bytes, sizeof bytes, 0);
    if (count <= 0) break;
    answer.append(bytes, static_cast<std::size_t>(count));
  }
  return answer;
}

}  // namespace

int free_port() {
  LocalSocket local(0);
  const bool done = bind(local.file, local.where(), local.size) == 0 &&
                    getsockname(local.file, local.where(), &local.size) == 0;
  return done ? ntohs(local.address.sin_port) : 0;
}

bool Nginx::is_installed() { return access(kNginx, X_OK) == 0; }

Nginx::Nginx(const fs::path& root, const std::string& tls)
    : folder_(root.string() + ".nginx"), tls_(tls) {
  fs::create_directories(folder_);
  // Another program may take a port before nginx does.
  for (int attempt = 0; attempt < 5; ++attempt)
    if (start(root)) return;
  throw std::runtime_error("nginx does not start: " + read_file(folder_ + "/errors"));
}

Nginx::~Nginx() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

std::size_t Nginx::requests(const std::string& text, std::size_t least) const {
  for (int left = 3000;; --left) {
    const std::size_t count = count_of(read_file(folder_ + "/requests"), text);
    if (count >= least || left == 0) return count;
    sleep_ms(10);
  }
}

/// Starts nginx. Returns true once it serves the folder, false if it ends.
bool Nginx::start(const fs::path& root) {
  port_ = free_port();
  const std::string token = root.string();  // a unique folder
  write_file(root / "token", token);
  std::string more;
  for (const char* kind : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"})
    more += fmt::format("  {0}_temp_path {1}/{0};\n", kind, folder_);
  if (!tls_.empty()) {
    secure_port_ = free_port();
    more += fmt::format(
        "  server {{ listen 127.0.0.1:{0} ssl http2; root {1};\n    ssl_certificate {2}/cert.pem; "
        "ssl_certificate_key {2}/key.pem;\n    location /moved/ {{ return 302 "
        "http://127.0.0.1:{3}$request_uri; }}\n  }}\n",
        secure_port_, root.string(), tls_, port_);
  }
  const std::string conf = folder_ + "/conf", errors = folder_ + "/errors";
  write_file(conf,
             fmt::format("daemon off;\nmaster_process off;\npid {0}/pid;\nerror_log {0}/errors;\n"
                         "events {{ worker_connections 64; }}\nhttp {{\n  access_log "
                         "{0}/requests;\n{1}  server {{ listen 127.0.0.1:{2}; root {3}; }}\n}}\n",
                         folder_, more, port_, root.string()));
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    execl(kNginx, "nginx", "-c", conf.c_str(), "-e", errors.c_str(), nullptr);
    _exit(127);
  }
  spare(pid_);
  while (!answer_at(port_, "/token").ends_with(token)) {
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      return false;
    }
    sleep_ms(10);
  }
  return true;
}

}  // namespace millrace::program_test
