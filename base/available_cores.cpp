#include "base/available_cores.h"

#include <sched.h>

namespace millrace::base {

int available_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace millrace::base
