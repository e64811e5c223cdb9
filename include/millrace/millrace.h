/* millrace plugin interface (C ABI), version 1.0.
 *
 * A plugin is a shared object that exports one constant, `millrace_plugin`: a table of units. A
 * unit is an augmentation, a decoder or a reader, described by data; the host reads and checks all
 * of it, parameters included, before it calls any function of the plugin. millrace.hpp is the same
 * in C++ and much shorter to write; what is built in is written on it too.
 *
 * Rules
 * - Structures only ever grow at their end, and each says its own size.
 * - Images are 8-bit, interleaved (height x width x channels), channels 1 or 3 (RGB).
 * - A unit's instance is immutable and shared by all threads; what a call needs to write, it gets
 *   with the call. Nothing may be kept between calls: a result depends on the instance, the image
 *   and the call's random numbers alone.
 * - Functions return MILLRACE_OK or another status after writing a line into `error`, and a second
 *   line with what to do, if there is something to do. They throw nothing.
 */
#ifndef MILLRACE_H
#define MILLRACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define MILLRACE_ZERO \
  {}
#define MILLRACE_INLINE constexpr
extern "C" {
#else
#define MILLRACE_ZERO
#define MILLRACE_INLINE static inline
#endif

#define MILLRACE_MAGIC 0x454341524C4C494DULL /* "MILLRACE", little endian */
#define MILLRACE_ABI_MAJOR 1
#define MILLRACE_ABI_MINOR 0

typedef int32_t millrace_status;
enum {
  MILLRACE_OK = 0,
  MILLRACE_BAD_DATA = 1, /* this sample, file or data set is damaged or unsuitable */
  MILLRACE_BAD_USE = 2   /* parameters that don't fit together, or not the images */
};

/* ---- images and geometry -------------------------------------------------------------------- */

typedef struct millrace_size { /* pixels */
  int32_t width MILLRACE_ZERO, height MILLRACE_ZERO;
} millrace_size;

typedef struct millrace_rect { /* half open: [x0, x1) x [y0, y1), pixels */
  int32_t x0 MILLRACE_ZERO, y0 MILLRACE_ZERO, x1 MILLRACE_ZERO, y1 MILLRACE_ZERO;
} millrace_rect;

typedef struct millrace_image {
  uint8_t* data MILLRACE_ZERO; /* pixel (x, y) starts at data + y * row + x * channels */
  int32_t width MILLRACE_ZERO, height MILLRACE_ZERO, channels MILLRACE_ZERO;
  ptrdiff_t row MILLRACE_ZERO; /* bytes from one row to the next, at least width * channels */
} millrace_image;

enum { MILLRACE_INDEX = 0, MILLRACE_NEAREST = 1, MILLRACE_BILINEAR = 2 }; /* interpolation */
enum { MILLRACE_CONSTANT = 0, MILLRACE_CLAMP = 1, MILLRACE_REFLECT = 2, MILLRACE_SYMMETRIC = 3 };
/* border; the last two, and clamp, with MILLRACE_INDEX: padding that shows the image itself */

/* Where each output pixel comes from. Coordinates are continuous: pixel i covers [i, i + 1). */
typedef struct millrace_warp {
  /* Output to input, row major, homogeneous: u = (m0 x + m1 y + m2) / (m6 x + m7 y + m8), v alike.
   * With MILLRACE_INDEX a signed permutation with whole offsets: pixels move, levels stay. */
  double map[9];
  millrace_size output;
  millrace_rect window; /* part of the input that may be seen */
  uint8_t fill[4];      /* a channel: what is seen outside (border MILLRACE_CONSTANT) */
  int32_t interpolation;
  int32_t border;
  int32_t antialias; /* bilinear, axis-aligned: widen the taps where the map shrinks */
} millrace_warp;

/* ---- random numbers ------------------------------------------------------------------------- */

/* Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011):
 * a stream that belongs to (seed; epoch, sample, unit) and to nothing else. */
typedef struct millrace_rng {
  uint32_t key[2];
  uint32_t counter[4];
  uint32_t block[4];
  uint32_t used; /* numbers of `block` handed out; 4: the next one needs a new block */
} millrace_rng;

/* 32 random bits. */
MILLRACE_INLINE uint32_t millrace_rng_bits(millrace_rng* rng) {
  if (rng->used == 4) {
    uint32_t c0 = rng->counter[0], c1 = rng->counter[1], c2 = rng->counter[2], c3 = rng->counter[3];
    uint32_t k0 = rng->key[0], k1 = rng->key[1];
    for (int round = 0; round < 10; ++round) {
      const uint64_t a = (uint64_t)0xD2511F53 * c0;
      const uint64_t b = (uint64_t)0xCD9E8D57 * c2;
      c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
      c1 = (uint32_t)b;
      c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
      c3 = (uint32_t)a;
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    rng->block[0] = c0;
    rng->block[1] = c1;
    rng->block[2] = c2;
    rng->block[3] = c3;
    ++rng->counter[3];
    rng->used = 0;
  }
  return rng->block[rng->used++];
}

/* ---- a call --------------------------------------------------------------------------------- */

/* What the host hands to every call on a sample. */
typedef struct millrace_call {
  size_t struct_size;
  void* host;
  char* error; /* a caller's buffer for one or two lines, ended by 0 */
  size_t error_size;
  millrace_rng rng; /* this unit's numbers for this sample */
  void* scratch;    /* as many bytes as the unit asked for, 64-byte aligned, contents undefined */
  size_t scratch_size;
  /* Any of these may be null. */
  void (*report)(struct millrace_call* call, const char* name, double value); /* shown by inspect */
  void (*log)(struct millrace_call* call, const char* line);
  int (*cancelled)(const struct millrace_call* call); /* 1: the result is no longer wanted */
  /* For readers, never null then: memory for a sample's bytes, valid until it is released. */
  uint8_t* (*memory)(struct millrace_call* call, size_t size);
} millrace_call;

/* ---- parameters ----------------------------------------------------------------------------- */

enum {
  MILLRACE_BOOLEAN = 1,
  MILLRACE_INTEGER,
  MILLRACE_NUMBER,
  MILLRACE_TEXT,
  MILLRACE_CHOICE,
  MILLRACE_NUMBERS, /* a list */
  MILLRACE_INTEGERS /* a list */
};

typedef struct millrace_param {
  const char* name; /* "degrees" */
  const char* help; /* one line, units included */
  int32_t type;
  uint32_t lengths;     /* of a list: bit n set if n numbers are taken; 0: any count */
  const char* fallback; /* the default, as it would stand in a recipe: "0.5", "[0.8, 1.2]" */
  double min, max;      /* of numbers, and of each number of a list */
  const char* choices;  /* "nearest|bilinear" */
} millrace_param;

typedef struct millrace_value {
  int64_t integer;       /* boolean (0, 1), integer, choice (its place) */
  double number;         /* number, integer */
  const char* text;      /* text, choice */
  const double* numbers; /* list */
  size_t count;
} millrace_value;

/* What an instance is made from. */
typedef struct millrace_create {
  size_t struct_size;
  void* host;
  const millrace_value* values; /* one a declared parameter, in that order, checked */
  size_t value_count;
  char* error;
  size_t error_size;
  /* Choices: an instance of another unit, given as in a recipe ("posterize{bits=4}"); returns its
   * place among the children, or -1 after writing into `error`. */
  int32_t (*child)(const struct millrace_create* create, const char* unit);
  /* Readers. */
  const char* path;  /* data.path */
  const char* split; /* data.split */
  /* Augmentations: output.mean and output.std, parts of full scale, one number or one a channel.
   * Level 255 * mean becomes 0 in the batch. Null where there is no output. */
  const double* mean;
  size_t mean_count;
  const double* std;
  size_t std_count;
} millrace_create;

/* ---- kinds of units ------------------------------------------------------------------------- */

/* Sees no pixels: says where they come from. Neighbours are folded into one pass, and the first
 * ones into what the decoder decodes. */
typedef struct millrace_geometric {
  size_t struct_size;
  /* Null: as large as the input. */
  millrace_status (*output)(const void* self, millrace_size input, millrace_size* output,
                            millrace_call* call);
  millrace_status (*warp)(const void* self, millrace_size input, millrace_warp* warp,
                          millrace_call* call);
} millrace_geometric;

enum { MILLRACE_POINTWISE = 0, MILLRACE_HALO = 1, MILLRACE_GLOBAL = 2 }; /* reach */

/* Changes an image in place. */
typedef struct millrace_pixel {
  size_t struct_size;
  int32_t reach; /* what a pixel's result may depend on besides itself */
  int32_t halo;  /* MILLRACE_HALO: pixels on each side */
  size_t (*scratch)(const void* self, millrace_size size, int32_t channels); /* null: none */
  /* Either `apply`, or `levels` where a channel's new level depends on its old one alone: a table a
   * channel, which holds 0..255 when called. Tables cost no pass of their own. */
  millrace_status (*apply)(const void* self, const millrace_image* image, millrace_call* call);
  millrace_status (*levels)(const void* self, uint8_t (*levels)[256], int32_t channels,
                            millrace_call* call);
} millrace_pixel;

/* Makes a new image of a size of its own. */
typedef struct millrace_filter {
  size_t struct_size;
  millrace_status (*output)(const void* self, millrace_size input, millrace_size* output,
                            millrace_call* call); /* null: as large as the input */
  size_t (*scratch)(const void* self, millrace_size input, int32_t channels); /* null: none */
  millrace_status (*apply)(const void* self, const millrace_image* source,
                           const millrace_image* destination, millrace_call* call);
} millrace_filter;

#define MILLRACE_MOST_CHOSEN 16

/* Draws which of its children this sample gets. */
typedef struct millrace_choice {
  size_t struct_size;
  /* Writes at most MILLRACE_MOST_CHOSEN places of children, in the order of application. */
  millrace_status (*choose)(const void* self, uint32_t* chosen, size_t* count, millrace_call* call);
} millrace_choice;

enum { MILLRACE_F32 = 0, MILLRACE_U8 = 1, MILLRACE_F16 = 2, MILLRACE_BF16 = 3 }; /* dtype */
enum { MILLRACE_CHW = 0, MILLRACE_HWC = 1 };                                     /* layout */

typedef struct millrace_sample {
  size_t struct_size;
  millrace_size size;
  int32_t channels;
  int32_t dtype;
  int32_t layout;
  int32_t classes;
} millrace_sample;

/* Works on a full batch, two neighbours at a time, after the store. */
typedef struct millrace_batch {
  size_t struct_size;
  /* Changes two samples and their labels (probabilities, `classes` numbers each) in place. */
  millrace_status (*pair)(const void* self, const millrace_sample* sample, void* first,
                          void* second, float* first_labels, float* second_labels,
                          millrace_call* call);
} millrace_batch;

/* What a decoder can tell before anything is allocated. */
typedef struct millrace_image_header {
  uint32_t width, height; /* pixels, as stored */
  uint32_t channels;      /* 1 or 3 of the stored image; decode() delivers what it is asked for */
  uint32_t orientation
      MILLRACE_ZERO; /* EXIF's 1 to 8; 0 where nothing is said. The host turns the image. */
  uint32_t scales
      MILLRACE_ZERO; /* bit n set: can deliver 1 / 2^n of the sides (bit 0 is understood) */
} millrace_image_header;

typedef struct millrace_decode {
  size_t struct_size;
  uint32_t channels;    /* 1 or 3 */
  uint32_t scale;       /* n: sides of 1 / 2^n, rounded up */
  millrace_rect region; /* of the scaled image */
} millrace_decode;

/* An image format. A context is one thread's working memory. */
typedef struct millrace_decoder {
  size_t struct_size;
  /* 1 if the bytes look like this format. Sees at most the first 64 bytes. */
  int (*sniff)(const uint8_t* bytes, size_t size);
  void* (*open)(const void* self); /* a context; null on failure */
  void (*close)(void* context);
  millrace_status (*header)(void* context, const uint8_t* bytes, size_t size,
                            millrace_image_header* header, millrace_call* call);
  /* Follows header(). Widens the region (never narrows it) to one that decode() can deliver with
   * the pixels asked for as they are in the whole image. Null: whole images only. */
  void (*region)(void* context, millrace_decode* request);
  /* Follows header() on the same bytes: what that has parsed may be used. Writes exactly the
   * region, rows of its width * channels bytes (gray, or RGB interleaved), row_bytes apart. */
  millrace_status (*decode)(void* context, const uint8_t* bytes, size_t size,
                            const millrace_decode* request, uint8_t* pixels, size_t row_bytes,
                            millrace_call* call);
} millrace_decoder;

typedef struct millrace_dataset {
  size_t struct_size;
  uint64_t count;             /* samples */
  const char* const* classes; /* names; a label is a place in it */
  size_t class_count;
  int32_t encoded;      /* 1: bytes are for a decoder; 0: they are pixels, all of this form: */
  millrace_size size;   /* and 64 bytes behind them may be read */
  int32_t channels;     /* 1 or 3 */
  int32_t planar;       /* 1: channels after each other instead of interleaved */
  int32_t may_block;    /* 1: borrow() may wait for storage */
  int32_t seekable;     /* 1: any index costs the same */
  uint64_t fingerprint; /* changes when the data set does */
} millrace_dataset;

typedef struct millrace_bytes {
  const uint8_t* data;
  size_t size;
  int64_t label;
  void* lease; /* the reader's own, for release() */
} millrace_bytes;

/* Samples by index. */
typedef struct millrace_reader {
  size_t struct_size;
  /* Valid as long as the instance. */
  millrace_status (*dataset)(const void* self, millrace_dataset* dataset);
  /* Bytes that stay as they are until release(), or, where that is null, until the call's memory
   * is used again. */
  millrace_status (*borrow)(const void* self, uint64_t index, millrace_bytes* bytes,
                            millrace_call* call);
  void (*release)(const void* self, millrace_bytes* bytes);
  /* What to call a sample in a message: a path, or a file and a place in it. */
  void (*name)(const void* self, uint64_t index, char* text, size_t size);
} millrace_reader;

/* ---- tables --------------------------------------------------------------------------------- */

/* One unit: what it is called and takes, and the functions of its kind (one of the pointers). */
typedef struct millrace_unit {
  size_t struct_size;
  const char* name; /* "random_crop": lower case, digits, _ */
  const char* help; /* one line */
  int32_t random;   /* 1: its result depends on random numbers, so evaluation leaves it out */
  const millrace_param* params;
  size_t param_count;
  size_t param_size; /* sizeof(millrace_param) */
  millrace_status (*create)(const millrace_create* create, void** self);
  void (*destroy)(void* self);
  const millrace_geometric* geometric;
  const millrace_pixel* pixel;
  const millrace_filter* filter;
  const millrace_choice* choice;
  const millrace_batch* batch;
  const millrace_decoder* decoder;
  const millrace_reader* reader;
} millrace_unit;

typedef struct millrace_plugin_table {
  uint64_t magic; /* MILLRACE_MAGIC */
  uint32_t abi_major;
  uint32_t abi_minor;
  size_t struct_size;
  const char* id;      /* "imgcodecs": lower case, digits, _ */
  const char* version; /* of the plugin and of the codec behind it: batches may depend on it */
  const char* licence; /* SPDX */
  const millrace_unit* const* units;
  size_t unit_count;
} millrace_plugin_table;

/* What a plugin exports under the name "millrace_plugin". */
extern const millrace_plugin_table millrace_plugin;

#ifdef __cplusplus
}
#endif
#endif
