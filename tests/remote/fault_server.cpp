// Serves objects, with faults.
#include "tests/remote/fault_server.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

namespace millrace::test {
namespace {

/// Sends everything; returns false if the client has left.
bool send_all(int client, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

std::string header_of(const std::string& request, const std::string& name) {
  const std::size_t at = request.find("\r\n" + name + ": ");
  if (at == std::string::npos) return {};
  const std::size_t begin = at + name.size() + 4;
  return request.substr(begin, request.find("\r\n", begin) - begin);
}

}  // namespace

FaultServer::FaultServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener_, 64) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error("no port on 127.0.0.1");
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { accept_all(); });
}

FaultServer::~FaultServer() {
  stop_.store(true);
  thread_.join();
  for (std::thread& client : clients_) client.join();
  close(listener_);
}

std::string FaultServer::url() const { return fmt::format("http://127.0.0.1:{}", port_); }

void FaultServer::put(const std::string& path, std::string content) {
  const std::lock_guard lock(mutex_);
  objects_[path].content = std::move(content);
}

void FaultServer::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  objects_.erase(path);
}

void FaultServer::redirect(const std::string& path, const std::string& location) {
  const std::lock_guard lock(mutex_);
  objects_[path].location = location;
}

void FaultServer::fail(const std::string& path, std::vector<Fault> faults, bool forever) {
  const std::lock_guard lock(mutex_);
  objects_[path].faults = std::move(faults);
  objects_[path].forever = forever;
}

void FaultServer::script(std::function<std::string(const std::string&)> answer) {
  const std::lock_guard lock(mutex_);
  script_ = std::move(answer);
}

std::vector<std::string> FaultServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void FaultServer::accept_all() {
  while (!stop_.load()) {
    pollfd waiting{listener_, POLLIN, 0};
    if (poll(&waiting, 1, 10) <= 0) continue;
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    connections_.fetch_add(1);
    // Otherwise a body waits up to 40 ms for the acknowledgement of its header.
    const int on = 1;
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    clients_.emplace_back([this, client] { serve(client); });
  }
}

void FaultServer::serve(int client) {
  std::string text;
  for (bool open = true; open && !stop_.load();) {
    pollfd waiting{client, POLLIN, 0};
    if (poll(&waiting, 1, 10) <= 0) continue;
    char bytes[4096];
    const ssize_t count = recv(client, bytes, sizeof bytes, 0);
    if (count <= 0) break;
    text.append(bytes, static_cast<std::size_t>(count));
    const std::size_t end = text.find("\r\n\r\n");
    if (end == std::string::npos) continue;
    std::this_thread::sleep_for(delay_.load());
    open = answer(client, text.substr(0, end + 4));
    text.erase(0, end + 4);
  }
  close(client);
}

/// Waits until the client closes its side.
void FaultServer::wait_for_end(int client) const {
  while (!stop_.load()) {
    pollfd waiting{client, POLLIN, 0};
    char byte = 0;
    if (poll(&waiting, 1, 10) > 0 && recv(client, &byte, 1, 0) <= 0) return;
  }
}

bool FaultServer::answer(int client, const std::string& request) {
  const std::size_t space = request.find(' ');
  std::string path = request.substr(space + 1, request.find(' ', space + 1) - space - 1);
  path = path.substr(0, path.find('?'));
  Object object;
  Fault fault = Fault::none;
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
    const std::string scripted = script_ ? script_(request) : std::string();
    if (!scripted.empty()) return send_all(client, scripted);
    const auto found = objects_.find(path);
    if (found == objects_.end()) {
      fault = Fault::missing;
    } else {
      Object& known = found->second;
      if (!known.faults.empty()) {
        fault = known.faults.front();
        if (!known.forever || known.faults.size() > 1) known.faults.erase(known.faults.begin());
      }
      object = known;
    }
  }
  return send_object(client, request, path, object, fault);
}

bool FaultServer::send_object(int client, const std::string& request, const std::string& path,
                              const Object& object, Fault fault) {
  const auto refuse = [&](const char* status, const char* more = "") {
    return send_all(client,
                    fmt::format("HTTP/1.1 {}\r\n{}Content-Length: 4\r\n\r\nsad\n", status, more));
  };
  if (!object.location.empty())
    return refuse("302 Found", fmt::format("Location: {}\r\n", object.location).c_str());
  switch (fault) {
    case Fault::reset:
      return false;
    case Fault::status_429:
      return refuse("429 Too Many Requests", "Retry-After: 1\r\n");
    case Fault::status_500:
      return refuse("500 Internal Server Error");
    case Fault::status_503:
      return refuse("503 Slow Down");
    case Fault::missing:
      return refuse("404 Not Found");
    case Fault::denied:
      return refuse("403 Forbidden");
    case Fault::redirect:
    case Fault::to_nowhere:
      return refuse("302 Found", fmt::format("Location: {}\r\n", path).c_str());
    case Fault::hints:
      while (!stop_.load() && send_all(client, "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"))
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return false;
    case Fault::garbage:
      send_all(client, fmt::format("{}\r\n\r\n", std::string(200, '\x01')));
      return false;
    default:
      break;
  }
  const std::string& content = object.content;
  const std::string range = header_of(request, "Range");
  std::size_t first = 0, behind = content.size();
  bool part = range.starts_with("bytes=") && fault != Fault::ignored_range;
  if (part) {
    first = std::stoul(range.substr(6));
    const std::string last = range.substr(range.find('-') + 1);
    if (!last.empty()) behind = std::min(behind, std::stoul(last) + 1);
  }
  if (fault == Fault::other_part && first > 0) --first;
  if (fault == Fault::unasked_part) part = true;
  std::string etag = fault == Fault::changed_etag ? "\"other\"" : "\"one\"";
  if (fault == Fault::weak_etag) etag = "W/\"one\"";
  std::string header = part ? fmt::format(
                                  "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes "
                                  "{}-{}/{}\r\n",
                                  first, behind - 1, content.size())
                            : std::string("HTTP/1.1 200 OK\r\n");
  std::string body = content.substr(first, behind - first);
  if (fault == Fault::flipped && !body.empty()) body[body.size() / 2] ^= 1;
  if (fault != Fault::no_etag) header += "ETag: " + etag + "\r\n";
  if (fault == Fault::encoded) header += "Content-Encoding: gzip\r\n";
  header +=
      fmt::format("Content-Length: {}\r\n\r\n", body.size() + (fault == Fault::longer ? 1 : 0));
  if (request.starts_with("HEAD")) return send_all(client, header);
  const bool cuts = fault == Fault::cut || fault == Fault::stall || fault == Fault::no_etag ||
                    fault == Fault::weak_etag || fault == Fault::changed_etag;
  if (cuts) body.resize(body.size() / 2);
  if (!send_all(client, header)) return false;
  const std::size_t piece = piece_.load();
  for (std::string_view rest = body; !rest.empty();) {
    const std::string_view next = rest.substr(0, piece == 0 ? rest.size() : piece);
    if (stop_.load() || !send_all(client, next)) return false;
    rest.remove_prefix(next.size());
    sent_.fetch_add(next.size());
    if (piece > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (fault == Fault::stall) wait_for_end(client);
  return !cuts;
}

}  // namespace millrace::test
