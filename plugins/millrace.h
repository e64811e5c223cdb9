/* millrace plugin interface (C ABI), version 0.1.
 *
 * A plugin is a shared object that exports one constant, `millrace_plugin`, of the type below. The
 * host reads and checks that table before it calls any function of the plugin. Structures only
 * ever grow at their end, and each says its own size, so an old plugin goes on working.
 *
 * So far the table holds decoders; augmentations and readers are appended to it later.
 */
#ifndef MILLRACE_H
#define MILLRACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MILLRACE_MAGIC 0x454341524C4C494DULL /* "MILLRACE", little endian */
#define MILLRACE_ABI_MAJOR 0
#define MILLRACE_ABI_MINOR 1

/* 0 is success; on any other the function has written one line into `error`. */
typedef int millrace_status;

/* What a decoder can tell from the first bytes, before it allocates anything. */
typedef struct millrace_image_header {
  uint32_t width;    /* pixels, as stored */
  uint32_t height;   /* pixels, as stored */
  uint32_t channels; /* 1 or 3 of the stored image; decode() delivers what it is asked for */
} millrace_image_header;

/* An image format. All functions may be called from several threads at once, each with a context
 * of its own. */
typedef struct millrace_decoder {
  size_t struct_size;
  const char* name; /* "jpeg" */
  const char* help; /* one line */
  /* 1 if the bytes look like this format. Sees at most the first 64 bytes. */
  int (*sniff)(const uint8_t* bytes, size_t size);
  /* Working memory of one thread; NULL on failure. */
  void* (*create)(void);
  void (*destroy)(void* context);
  millrace_status (*header)(void* context, const uint8_t* bytes, size_t size,
                            millrace_image_header* header, char* error, size_t error_size);
  /* Writes height rows of width * channels bytes (gray, or RGB interleaved), row_bytes apart. The
   * image is the one that header() described; `channels` is 1 or 3. */
  millrace_status (*decode)(void* context, const uint8_t* bytes, size_t size, uint32_t channels,
                            uint8_t* pixels, size_t row_bytes, char* error, size_t error_size);
} millrace_decoder;

typedef struct millrace_plugin_table {
  uint64_t magic; /* MILLRACE_MAGIC */
  uint32_t abi_major;
  uint32_t abi_minor;
  size_t struct_size;
  const char* id;      /* "imgcodecs" */
  const char* version; /* of the plugin and the codec behind it */
  const char* licence; /* SPDX */
  const millrace_decoder* const* decoders;
  size_t decoder_count;
} millrace_plugin_table;

/* What a plugin exports under the name "millrace_plugin". */
extern const millrace_plugin_table millrace_plugin;

#ifdef __cplusplus
}
#endif
#endif
