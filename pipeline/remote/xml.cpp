// Reads XML.
#include "pipeline/remote/xml.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "millrace/error.h"

namespace millrace::pipeline {
namespace {

constexpr int kMaxDepth = 16;
constexpr std::string_view kBlank = " \t\r\n";

[[noreturn]] void refuse(const char* why) {
  throw DataError(std::string("the answer is not well-formed XML: ") + why,
                  "check the address of the server");
}

void append_utf8(std::string& out, std::uint32_t code) {
  const auto byte = [&](std::uint32_t value) { out += static_cast<char>(value); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | code >> 6);
    byte(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12);
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  } else {
    byte(0xf0 | code >> 18);
    byte(0x80 | (code >> 12 & 0x3f));
    byte(0x80 | (code >> 6 & 0x3f));
    byte(0x80 | (code & 0x3f));
  }
}

/// Appends what "&NAME;" stands for.
void append_entity(std::string& out, std::string_view name) {
  if (name == "amp") {
    out += '&';
  } else if (name == "lt") {
    out += '<';
  } else if (name == "gt") {
    out += '>';
  } else if (name == "quot") {
    out += '"';
  } else if (name == "apos") {
    out += '\'';
  } else if (name.starts_with('#')) {
    name.remove_prefix(1);
    const bool hex = name.starts_with('x');
    if (hex) name.remove_prefix(1);
    std::uint32_t code = 0;
    const auto [end, status] =
        std::from_chars(name.data(), name.data() + name.size(), code, hex ? 16 : 10);
    const bool whole = !name.empty() && status == std::errc() && end == name.data() + name.size();
    if (!whole || code == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
      refuse("it refers to an unknown character");
    append_utf8(out, code);
  } else {
    refuse("it uses an entity of its own");
  }
}

/// Returns an element's name without the prefix of a namespace.
std::string_view local_name(std::string_view name) {
  const std::size_t colon = name.rfind(':');
  if (colon != name.npos) name.remove_prefix(colon + 1);
  if (name.empty() || name.find_first_of("/<&\"'=") != name.npos)
    refuse("an element has no proper name");
  return name;
}

}  // namespace

/// Takes everything before `end`, and `end`.
std::string_view XmlReader::take_until(std::string_view end) {
  const std::size_t at = left_.find(end);
  if (at == left_.npos) refuse("it ends early");
  const std::string_view taken = left_.substr(0, at);
  left_.remove_prefix(at + end.size());
  return taken;
}

void XmlReader::add_text(std::string_view raw) {
  if (depth_ == 0) {
    if (raw.find_first_not_of(kBlank) != raw.npos) refuse("text stands outside of all elements");
    return;
  }
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '&') {
      text_ += raw[i];
      continue;
    }
    const std::size_t end = raw.find(';', i);
    if (end == raw.npos) refuse("an entity does not end");
    append_entity(text_, raw.substr(i + 1, end - i - 1));
    i = end;
  }
}

XmlReader::Event XmlReader::open(std::string_view name, bool empty) {
  if (depth_ == 0 && rooted_) refuse("it has two roots");
  if (depth_ == kMaxDepth) refuse("it is nested too deeply");
  rooted_ = true;
  ++depth_;
  path_ += '/';
  path_ += local_name(name);
  text_.clear();
  close_next_ = empty;
  return Event::open;
}

XmlReader::Event XmlReader::close(std::string_view name) {
  if (depth_ == 0 || local_name(name) != std::string_view(path_).substr(path_.rfind('/') + 1))
    refuse("an element ends that was not begun");
  --depth_;
  leave_ = true;
  return Event::close;
}

XmlReader::Event XmlReader::next() {
  if (leave_) {
    path_.erase(path_.rfind('/'));
    text_.clear();
    leave_ = false;
  }
  if (close_next_) {
    close_next_ = false;
    return close(std::string_view(path_).substr(path_.rfind('/') + 1));
  }
  while (true) {
    const std::size_t tag = std::min(left_.find('<'), left_.size());
    add_text(left_.substr(0, tag));
    left_.remove_prefix(tag);
    if (left_.empty()) {
      if (depth_ > 0 || !rooted_) refuse("it ends early");
      return Event::end;
    }
    left_.remove_prefix(1);
    if (left_.starts_with('?')) {
      take_until("?>");
    } else if (left_.starts_with("!--")) {
      left_.remove_prefix(3);
      take_until("-->");
    } else if (left_.starts_with('!')) {
      refuse("it holds a document type or CDATA");
    } else if (left_.starts_with('/')) {
      left_.remove_prefix(1);
      std::string_view name = take_until(">");
      return close(name.substr(0, name.find_last_not_of(kBlank) + 1));
    } else {
      std::string_view tag_text = take_until(">");
      if (std::count(tag_text.begin(), tag_text.end(), '"') % 2 != 0)
        refuse("an attribute does not end");
      const bool empty = tag_text.ends_with('/');
      if (empty) tag_text.remove_suffix(1);
      return open(tag_text.substr(0, tag_text.find_first_of(kBlank)), empty);
    }
  }
}

std::optional<std::string> xml_text(std::string_view xml, std::string_view path) {
  try {
    XmlReader reader(xml);
    for (auto event = reader.next(); event != XmlReader::Event::end; event = reader.next())
      if (event == XmlReader::Event::close && reader.path() == path) return reader.text();
  } catch (const DataError&) {  // an answer of another kind
  }
  return std::nullopt;
}

}  // namespace millrace::pipeline
