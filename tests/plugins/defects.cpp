// A pixel unit in plain structures with one defect: compiled once for each defect, which the build
// names (-DDEFECT_CRASH). Without a name it is sound.
#include <locale.h>
#include <millrace/millrace.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cfenv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>

#if defined(DEFECT_UNDEFINED_SYMBOL)
extern "C" int function_that_is_nowhere();
#endif

namespace {

const struct AtLoad {
  AtLoad() {
#if defined(DEFECT_CRASH_AT_LOAD)
    std::abort();
#elif defined(DEFECT_HANG_AT_LOAD)
    for (volatile int forever = 1; forever == 1;) {
    }
#elif defined(DEFECT_EXIT_AT_LOAD)
    std::exit(0);
#elif defined(DEFECT_THROWS_AT_LOAD)
    throw std::runtime_error("no");
#elif defined(DEFECT_PRINTS)
    std::puts("loaded, says the plugin");
#elif defined(DEFECT_LEAVES_A_MARK)
    // Creates the file that a variable names, for tests of whether a plugin is loaded at all.
    if (const char* mark = std::getenv("TEST_MARK")) std::fclose(std::fopen(mark, "w"));
#endif
  }
} at_load;

millrace_status create(const millrace_create* create, void** self) {
#if defined(DEFECT_CREATE_THROWS)
  throw std::runtime_error("create is not in the mood");
#endif
#if defined(DEFECT_REFUSES_DEFAULTS)
  std::strncpy(create->error, "p is never right", create->error_size);
  return MILLRACE_BAD_USE;
#endif
  *self = std::malloc(48);
  *static_cast<double*>(*self) = create->values[0].number;
  return MILLRACE_OK;
}

void destroy(void* self) {
#if !defined(DEFECT_LEAK)
  std::free(self);
#if defined(DEFECT_DESTROY_THROWS)
  throw std::runtime_error("it was dear to me");
#endif
#else
  static_cast<void>(self);
#endif
}

size_t scratch(const void*, millrace_size size, int32_t channels) {
  return static_cast<size_t>(size.width * channels);
}

/// Inverts the image, row by row by way of the scratch.
millrace_status apply(const void*, const millrace_image* image, millrace_call* call) {
  [[maybe_unused]] static int calls = 0;
  int level = 255;
#if defined(DEFECT_CALL_ORDER)
  level -= ++calls % 2;
#elif defined(DEFECT_THREAD)
  static const std::thread::id first = std::this_thread::get_id();
  level -= std::this_thread::get_id() == first ? 0 : 1;
#elif defined(DEFECT_OLD_SCRATCH)
  level -= static_cast<uint8_t*>(call->scratch)[0] & 1;
#elif defined(DEFECT_THROWS)
  throw std::runtime_error("the sky is falling");
#elif defined(DEFECT_THROWS_A_NUMBER)
  throw 42;
#elif defined(DEFECT_CRASH)
  *reinterpret_cast<volatile int*>(8) = 1;
#elif defined(DEFECT_ABORTS)
  std::abort();
#elif defined(DEFECT_DIVIDES)
  raise(SIGFPE);  // not every processor traps a division by zero
#elif defined(DEFECT_ILLEGAL)
  raise(SIGILL);
#elif defined(DEFECT_BUS_ERROR)
  const int empty = memfd_create("empty", 0);
  *static_cast<volatile char*>(mmap(nullptr, 4096, PROT_READ, MAP_SHARED, empty, 0));
#elif defined(DEFECT_DESTRUCTOR_THROWS)
  struct Local {
    ~Local() { throw std::runtime_error("not even once"); }
  } local;
#elif defined(DEFECT_CALLS_EXIT)
  std::exit(0);
#elif defined(DEFECT_PRINTS)
  std::puts("applied, says the plugin");
#elif defined(DEFECT_HANG)
  for (volatile int forever = 1; forever == 1;) {
  }
#elif defined(DEFECT_EXIT)
  std::_Exit(0);
#elif defined(DEFECT_ROUNDING)
  std::fesetround(FE_UPWARD);
#elif defined(DEFECT_LOCALE)
  setlocale(LC_ALL, "C.UTF-8");
#elif defined(DEFECT_STATUS)
  return 17;
#elif defined(DEFECT_SILENT)
  return MILLRACE_BAD_DATA;
#elif defined(DEFECT_ERROR_OVERRUN)
  std::memset(call->error, 'x', call->error_size);
  return MILLRACE_BAD_DATA;
#elif defined(DEFECT_RECURSES)
  return image->width > 0 ? apply(nullptr, image, call) : MILLRACE_OK;
#endif
  const int bytes = image->width * image->channels;
  auto* line = static_cast<uint8_t*>(call->scratch);
  for (int y = 0; y < image->height; ++y) {
    uint8_t* row = image->data + y * image->row;
    int from = 0, to = bytes;
#if defined(DEFECT_WRITES_PAST_ROW)
    to += y + 1 < image->height ? 1 : 0;
#elif defined(DEFECT_WRITES_PAST_IMAGE)
    to += y + 1 < image->height ? 0 : 1;
#elif defined(DEFECT_WRITES_BEFORE_IMAGE)
    from -= y > 0 ? 0 : 1;
#endif
    for (int x = 0; x < bytes; ++x) line[x] = static_cast<uint8_t>(level - row[x]);
#if defined(DEFECT_READS_A_NEIGHBOUR)
    for (int x = image->channels; x < bytes; ++x) line[x] ^= row[x - image->channels];
#elif defined(DEFECT_SMALL_HALO)
    for (int x = 2 * image->channels; x < bytes; ++x) line[x] ^= row[x - 2 * image->channels];
#endif
#if defined(DEFECT_WRITES_PAST_SCRATCH)
    line[bytes] = 0;
#endif
    for (int x = from; x < to; ++x) row[x] = line[x < 0 || x >= bytes ? 0 : x];
  }
  return MILLRACE_OK;
}

const millrace_pixel pixel {
#if defined(DEFECT_SHORT_STRUCT)
  16,
#else
  sizeof(millrace_pixel),
#endif
#if defined(DEFECT_SMALL_HALO)
      MILLRACE_HALO, 1,
#else
      MILLRACE_POINTWISE, 0,
#endif
      &scratch,
#if defined(DEFECT_NULL_FUNCTION)
      nullptr,
#else
      &apply,
#endif
      nullptr
};

const millrace_param params[] = {{"p", "not used", MILLRACE_NUMBER, 0,
#if defined(DEFECT_BAD_DEFAULT)
                                  "2",
#else
                                  "0.5",
#endif
                                  0, 1, nullptr}};

#if defined(DEFECT_DUPLICATE_UNIT)
const char* const kUnit = "hflip";
#else
const char* const kUnit = "defect";
#endif

const millrace_unit unit{sizeof(millrace_unit),
                         kUnit,
                         "inverts the image",
                         0,
                         params,
                         1,
                         sizeof(millrace_param),
                         &create,
                         &destroy,
                         nullptr,
                         &pixel,
                         nullptr,
                         nullptr,
                         nullptr,
                         nullptr,
                         nullptr};
const millrace_unit* const units[] = {&unit};

}  // namespace

#if !defined(DEFECT_NO_SYMBOL)
extern "C" __attribute__((visibility("default"))) const millrace_plugin_table millrace_plugin = {
#if defined(DEFECT_WRONG_MAGIC)
    0x1234,
#else
    MILLRACE_MAGIC,
#endif
#if defined(DEFECT_NEWER_MAJOR)
    MILLRACE_ABI_MAJOR + 1,
#else
    MILLRACE_ABI_MAJOR,
#endif
#if defined(DEFECT_NEWER_MINOR)
    MILLRACE_ABI_MINOR + 1,
#else
    MILLRACE_ABI_MINOR,
#endif
    sizeof(millrace_plugin_table),
#if defined(DEFECT_DUPLICATE_ID)
    "augmentations",
#else
    "defect",
#endif
    "1",
    "MIT",
    units,
    1};
#endif

#if defined(DEFECT_UNDEFINED_SYMBOL)
extern "C" __attribute__((visibility("default"))) int needs_it() {
  return function_that_is_nowhere();
}
#endif
