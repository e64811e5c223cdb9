// File descriptor of the recorder, in a process whose descriptors belong to a script.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

namespace millrace::measure {

/// Closes a descriptor when it goes, unless the script has closed it before (os.closerange) and the
/// number is another file's by now.
class ScriptDescriptor {
 public:
  explicit ScriptDescriptor(int number) : number_(number) {
    if (number_ >= 0 && fstat(number_, &opened_) != 0) opened_.st_ino = 0;
  }
  ~ScriptDescriptor() { close_own(); }
  ScriptDescriptor(const ScriptDescriptor&) = delete;
  ScriptDescriptor& operator=(const ScriptDescriptor&) = delete;

  /// Returns -1 if there is none.
  int number() const { return number_; }
  void close_own() {
    struct stat now {};
    if (number_ >= 0 && fstat(number_, &now) == 0 && now.st_ino == opened_.st_ino &&
        now.st_dev == opened_.st_dev)
      close(number_);
    number_ = -1;
  }

 private:
  int number_;
  struct stat opened_ {};
};

}  // namespace millrace::measure
