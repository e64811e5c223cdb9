/* millrace plugin interface (C ABI), version 1.3.
 *
 * A plugin is a shared object that exports one constant, `millrace_plugin`: a table of units. A
 * unit is an augmentation, a decoder or a reader, described by data. The host reads and checks
 * all of that data, parameters included, before it calls any function of the plugin
 * (plugin-safety contract). millrace.hpp is the same interface in C++ and much shorter to write;
 * the built-in units use it too (equal-plugins contract).
 *
 * Rules
 * - Structures only ever grow at their end. Each states its own size in struct_size. Members that
 *   came after version 1.0 say so; the host reads them only where struct_size covers them, so that
 *   plugins that were built against an earlier minor version load and give the same bytes.
 * - Images are interleaved (height x width x channels). They have 8 bits and 1 channel or 3 (RGB),
 *   unless a recipe sets decode.depth: then they are millrace_float_image, with any number of
 *   channels, and reach only units that take these.
 * - A unit's instance is immutable and shared by all threads. Memory that a call may write comes
 *   with the call. A plugin keeps no state between calls: a result depends on the instance, the
 *   image and the call's random numbers alone (determinism contract).
 * - Functions return MILLRACE_OK, or another status after writing one line into `error` and, if
 *   there is a remedy, a second line that names it. They throw nothing.
 * - Pointers that the host passes in are valid for the duration of the call. Strings end with 0.
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
#define MILLRACE_ABI_MINOR 3

typedef int32_t millrace_status;
enum {
  MILLRACE_OK = 0,
  MILLRACE_BAD_DATA = 1, /* the sample, file or data set is damaged or unsuitable */
  MILLRACE_BAD_USE = 2   /* the parameters do not fit together or do not fit the images */
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

/* Since 1.3. Pixels as floats: levels as fractions of full scale (255 or 65,535), and floats as
 * they are stored. */
typedef struct millrace_float_image {
  float* data MILLRACE_ZERO; /* pixel (x, y) starts at data + y * row + x * channels */
  int32_t width MILLRACE_ZERO, height MILLRACE_ZERO, channels MILLRACE_ZERO;
  ptrdiff_t row MILLRACE_ZERO; /* floats from one row to the next, at least width * channels */
} millrace_float_image;

/* Since 1.3: bits of a pixel's values as stored. */
enum { MILLRACE_DEPTH_8 = 8, MILLRACE_DEPTH_16 = 16, MILLRACE_DEPTH_FLOAT = 32 };

enum { MILLRACE_INDEX = 0, MILLRACE_NEAREST = 1, MILLRACE_BILINEAR = 2 }; /* interpolation */
enum { MILLRACE_CONSTANT = 0, MILLRACE_CLAMP = 1, MILLRACE_REFLECT = 2, MILLRACE_SYMMETRIC = 3 };
/* border. The last three also work with MILLRACE_INDEX: padding filled from the image itself */

/* Maps each output pixel to a position in the input. Coordinates are continuous: pixel i covers
 * [i, i + 1). */
typedef struct millrace_warp {
  /* Output to input, row major, homogeneous: u = (m0 x + m1 y + m2) / (m6 x + m7 y + m8), and v
   * = (m3 x + m4 y + m5) / (the same divisor). With MILLRACE_INDEX it is a signed permutation
   * with whole offsets: pixels move, and their levels stay. */
  double map[9];
  millrace_size output;
  millrace_rect window; /* the part of the input that may be read */
  uint8_t fill[4];      /* level per channel outside the window (border MILLRACE_CONSTANT) */
  int32_t interpolation;
  int32_t border;
  int32_t antialias; /* 1: widen the taps where the map shrinks (bilinear, axis-aligned maps) */
} millrace_warp;

/* ---- random numbers ------------------------------------------------------------------------- */

/* A random stream that depends on (seed; epoch, sample, unit) and on nothing else. Philox4x32-10
 * (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011). */
typedef struct millrace_rng {
  uint32_t key[2];
  uint32_t counter[4];
  uint32_t block[4];
  uint32_t used; /* numbers taken from `block`; 4: the next one needs a new block */
} millrace_rng;

/* Returns 32 random bits and advances the stream. */
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

/* Context of one call on one sample. It belongs to the calling thread, for this call only. */
typedef struct millrace_call {
  size_t struct_size;
  void* host;
  char* error; /* the host's buffer for one or two lines, ended by 0 */
  size_t error_size;
  millrace_rng rng; /* this unit's random numbers for this sample */
  void* scratch;    /* as many bytes as the unit asked for, 64-byte aligned, contents undefined */
  size_t scratch_size;
  /* Names a drawn value, which `inspect` prints. This pointer and the next two may be null. */
  void (*report)(struct millrace_call* call, const char* name, double value);
  /* Logs a line; the host may ignore it. */
  void (*log)(struct millrace_call* call, const char* line);
  /* Returns 1 if the result is no longer needed. */
  int (*cancelled)(const struct millrace_call* call);
  /* Readers only, and never null for them: returns `size` bytes for a sample, valid until it is
   * released, or null if memory is short. */
  uint8_t* (*memory)(struct millrace_call* call, size_t size);
} millrace_call;

/* ---- parameters ----------------------------------------------------------------------------- */

enum {
  MILLRACE_BOOLEAN = 1,
  MILLRACE_INTEGER,
  MILLRACE_NUMBER,
  MILLRACE_TEXT,
  MILLRACE_CHOICE,
  MILLRACE_NUMBERS, /* a list of numbers */
  MILLRACE_INTEGERS /* a list of whole numbers */
};

/* Declares a parameter of a unit. */
typedef struct millrace_param {
  const char* name; /* "degrees" */
  const char* help; /* one line, units included */
  int32_t type;
  uint32_t lengths;     /* lists: bit n set if n numbers are allowed; 0: any count */
  const char* fallback; /* default as written in a recipe: "0.5", "[0.8, 1.2]" */
  double min, max;      /* range of numbers, and of each number in a list */
  const char* choices;  /* "nearest|bilinear" */
} millrace_param;

/* One parameter's value, in the fields that belong to its type. */
typedef struct millrace_value {
  int64_t integer;       /* boolean (0, 1), integer, choice (its index) */
  double number;         /* number, integer */
  const char* text;      /* text, choice */
  const double* numbers; /* list */
  size_t count;
} millrace_value;

/* Arguments of millrace_unit.create, valid during that call. The instance copies what it keeps. */
typedef struct millrace_create {
  size_t struct_size;
  void* host;
  const millrace_value* values; /* one per declared parameter, in that order, checked */
  size_t value_count;
  char* error;
  size_t error_size;
  /* Choices: makes an instance of another unit, written as in a recipe ("posterize{bits=4}").
   * Returns its index among the children, or -1 after writing into `error`. */
  int32_t (*child)(const struct millrace_create* create, const char* unit);
  /* For readers: */
  const char* path;  /* data.path */
  const char* split; /* data.split */
  /* For augmentations: output.mean and output.std as fractions of full scale, one number or one
   * per channel. Level 255 * mean becomes 0 in the batch. Null if there is no output. */
  const double* mean;
  size_t mean_count;
  const double* std;
  size_t std_count;
} millrace_create;

/* ---- kinds of units ------------------------------------------------------------------------- */

/* Geometric: says which input position each output pixel shows, and touches no pixels. The host
 * fuses neighbouring geometric units into one pass, and may pass the first ones on to the
 * decoder. */
typedef struct millrace_geometric {
  size_t struct_size;
  /* Writes the output's size. Null: same size as the input. */
  millrace_status (*output)(const void* self, millrace_size input, millrace_size* output,
                            millrace_call* call);
  /* Writes the map from output to input positions for an input of this size. */
  millrace_status (*warp)(const void* self, millrace_size input, millrace_warp* warp,
                          millrace_call* call);
} millrace_geometric;

enum { MILLRACE_POINTWISE = 0, MILLRACE_HALO = 1, MILLRACE_GLOBAL = 2 }; /* reach */

/* Pixel: changes an image in place. */
typedef struct millrace_pixel {
  size_t struct_size;
  int32_t reach; /* other pixels that a pixel's result may depend on */
  int32_t halo;  /* MILLRACE_HALO: pixels on each side */
  /* Returns the bytes of scratch memory that a call needs. Null: none. */
  size_t (*scratch)(const void* self, millrace_size size, int32_t channels);
  /* One of the next two is set. `levels` serves units whose new level in a channel depends on
   * the old level alone: it changes one table per channel, which holds 0..255 on entry. Tables
   * cost no pass of their own. */
  millrace_status (*apply)(const void* self, const millrace_image* image, millrace_call* call);
  millrace_status (*levels)(const void* self, uint8_t (*levels)[256], int32_t channels,
                            millrace_call* call);
  /* Since 1.3: does the same to an image of floats, without scratch memory. Null: the unit takes 8
   * bits only. */
  millrace_status (*apply_floats)(const void* self, const millrace_float_image* image,
                                  millrace_call* call) MILLRACE_ZERO;
} millrace_pixel;

/* Filter: writes a new image, whose size it may choose. */
typedef struct millrace_filter {
  size_t struct_size;
  /* Writes the output's size. Null: same size as the input. */
  millrace_status (*output)(const void* self, millrace_size input, millrace_size* output,
                            millrace_call* call);
  /* Returns the bytes of scratch memory that a call needs. Null: none. */
  size_t (*scratch)(const void* self, millrace_size input, int32_t channels);
  /* Writes `destination`, which has the size from output() and the source's channels. */
  millrace_status (*apply)(const void* self, const millrace_image* source,
                           const millrace_image* destination, millrace_call* call);
} millrace_filter;

#define MILLRACE_MOST_CHOSEN 16

/* Choice: draws which of its children to apply to a sample. */
typedef struct millrace_choice {
  size_t struct_size;
  /* Writes the indices of at most MILLRACE_MOST_CHOSEN children, in the order of application,
   * and their number. */
  millrace_status (*choose)(const void* self, uint32_t* chosen, size_t* count, millrace_call* call);
} millrace_choice;

enum { MILLRACE_F32 = 0, MILLRACE_U8 = 1, MILLRACE_F16 = 2, MILLRACE_BF16 = 3 }; /* dtype */
enum { MILLRACE_CHW = 0, MILLRACE_HWC = 1 };                                     /* layout */

/* Shape and type of a finished sample in a batch. */
typedef struct millrace_sample {
  size_t struct_size;
  millrace_size size;
  int32_t channels;
  int32_t dtype;
  int32_t layout;
  int32_t classes;
} millrace_sample;

/* Since 1.2. A rectangle of sample `to` of a group that shows sample `from` of the same group, as
 * it was before: pixel (x, y) of the window shows pixel (x - dx, y - dy). Both lie in their
 * samples. */
typedef struct millrace_part {
  int32_t to MILLRACE_ZERO, from MILLRACE_ZERO; /* positions in the group */
  millrace_rect window;
  int32_t dx MILLRACE_ZERO, dy MILLRACE_ZERO; /* pixels */
  double weight MILLRACE_ZERO;                /* share of what the window shows, 0 to 1 */
} millrace_part;

#define MILLRACE_MOST_PARTS 16 /* of one sample */

#define MILLRACE_WHOLE_BATCH (-1) /* millrace_batch.group: all samples of a batch together */
#define MILLRACE_LARGEST_GROUP 256

/* Batch: works on groups of neighbouring samples of a full batch, after the store. A batch of n
 * samples has groups 0 .. g-1, g .. 2g-1 and so on; the last n % g samples stay as they are, and so
 * does a group of which a sample failed. Ranks divide a batch at multiples of g, so that a group
 * never lies on two of them. */
typedef struct millrace_batch {
  size_t struct_size;
  /* Changes two samples and their labels (`classes` probabilities each) in place. Null if `mix` is
   * set, or `parts` alone. */
  millrace_status (*pair)(const void* self, const millrace_sample* sample, void* first,
                          void* second, float* first_labels, float* second_labels,
                          millrace_call* call);
  /* Since 1.1: the size g of a group, 2 to MILLRACE_LARGEST_GROUP, or MILLRACE_WHOLE_BATCH, which
   * rules out several ranks. 2 (or 0) with `pair`. */
  int32_t group MILLRACE_ZERO;
  /* Since 1.1, instead of `pair`: changes `count` samples and their labels in place. `count` is
   * `group`; with MILLRACE_WHOLE_BATCH it is the number of samples in the batch that did not fail,
   * at least 2. */
  millrace_status (*mix)(const void* self, const millrace_sample* sample, void* const* samples,
                         float* const* labels, size_t count, millrace_call* call) MILLRACE_ZERO;
  /* Since 1.2: writes the parts that the samples of a group of `samples` consist of, those of the
   * first sample first, and their number. A sample without parts stays as it is; those of another
   * cover it. Beside `pair` or `mix` they say what that call has done, drawing the same random
   * numbers, and boxes and objects' masks follow. Instead of them, with weights of 1, the host
   * moves the pixels, mixes labels by area, and takes boxes and all masks along. Null: not known,
   * and data sets with boxes or masks are refused. */
  millrace_status (*parts)(const void* self, const millrace_sample* sample, size_t samples,
                           millrace_part* parts, size_t* count, millrace_call* call) MILLRACE_ZERO;
} millrace_batch;

/* Contents of an image's header, read before anything is allocated. */
typedef struct millrace_image_header {
  uint32_t width, height; /* pixels, as stored */
  uint32_t channels;      /* 1 or 3, as stored; decode() delivers the number that it is asked for */
  /* EXIF orientation, 1 to 8; 0: not stated. The host turns the image. */
  uint32_t orientation MILLRACE_ZERO;
  /* Bit n set: can decode at 1 / 2^n of the sides (bit 0 is implied). */
  uint32_t scales MILLRACE_ZERO;
  /* Since 1.3: MILLRACE_DEPTH_8 (or 0), _16 or _FLOAT, in which decode() delivers the image where
   * that is asked for, with `bands` channels; 0: `channels`. Every image can be had with 8 bits, or
   * decode() says why not. */
  uint32_t depth MILLRACE_ZERO;
  uint32_t bands MILLRACE_ZERO;
} millrace_image_header;

/* Describes the pixels that a decoder must deliver. */
typedef struct millrace_decode {
  size_t struct_size;
  uint32_t channels;    /* 1 or 3; the header's `bands` where its `depth` is asked for */
  uint32_t scale;       /* n: sides are 1 / 2^n of the stored ones, rounded up */
  millrace_rect region; /* in pixels of the scaled image */
  /* Since 1.3: MILLRACE_DEPTH_8 (or 0), or the depth that header() found: values are then numbers
   * of that type in this machine's byte order. */
  uint32_t depth MILLRACE_ZERO;
} millrace_decode;

/* Decoder: one image format. A context is the working memory of one thread. */
typedef struct millrace_decoder {
  size_t struct_size;
  /* Returns 1 if the bytes look like this format. Sees at most the first 64 bytes. */
  int (*sniff)(const uint8_t* bytes, size_t size);
  /* Returns a context, or null on failure. */
  void* (*open)(const void* self);
  /* Frees a context. */
  void (*close)(void* context);
  /* Parses the header of an encoded image. */
  millrace_status (*header)(void* context, const uint8_t* bytes, size_t size,
                            millrace_image_header* header, millrace_call* call);
  /* Called after header(). Widens the region, and never narrows it, to one that decode() can
   * deliver with the same pixels as a decode of the whole image. Null: whole images only. */
  void (*region)(void* context, millrace_decode* request);
  /* Called after header() with the same bytes, so it may reuse the parsed state. Writes exactly
   * the region: rows of its width * channels values (gray, RGB or bands, interleaved), row_bytes
   * apart. */
  millrace_status (*decode)(void* context, const uint8_t* bytes, size_t size,
                            const millrace_decode* request, uint8_t* pixels, size_t row_bytes,
                            millrace_call* call);
} millrace_decoder;

/* Describes a data set once it is open. */
typedef struct millrace_dataset {
  size_t struct_size;
  uint64_t count;             /* number of samples */
  const char* const* classes; /* names; a label is an index into this list */
  size_t class_count;
  /* 1: bytes need a decoder. 0: they are pixels, which the next three members describe, with 64
   * readable bytes behind them. */
  int32_t encoded;
  millrace_size size;   /* of every image */
  int32_t channels;     /* 1 or 3 */
  int32_t planar;       /* 1: one channel after the other instead of interleaved */
  int32_t may_block;    /* 1: borrow() may wait for storage */
  int32_t seekable;     /* 1: every index costs the same */
  uint64_t fingerprint; /* changes when the data set does */
} millrace_dataset;

/* One sample's bytes, on loan from the reader. */
typedef struct millrace_bytes {
  const uint8_t* data;
  size_t size;
  int64_t label;
  void* lease; /* the reader's own handle, for release() */
} millrace_bytes;

/* Reader: returns samples by index. The functions may be called from many threads at once. */
typedef struct millrace_reader {
  size_t struct_size;
  /* Describes the data set. Its pointers are valid as long as the instance. */
  millrace_status (*dataset)(const void* self, millrace_dataset* dataset);
  /* Lends a sample's bytes. They stay unchanged until release(), or, if that is null, until the
   * memory of the same call is used again. */
  millrace_status (*borrow)(const void* self, uint64_t index, millrace_bytes* bytes,
                            millrace_call* call);
  /* Takes back borrowed bytes. Null: nothing to take back. */
  void (*release)(const void* self, millrace_bytes* bytes);
  /* Writes a sample's name for messages, ended by 0: a path, or a file and a position in it. */
  void (*name)(const void* self, uint64_t index, char* text, size_t size);
} millrace_reader;

/* ---- tables --------------------------------------------------------------------------------- */

/* One unit: its name, its parameters, and the functions of its kind. Exactly one of the kind
 * pointers is set. */
typedef struct millrace_unit {
  size_t struct_size;
  const char* name; /* "random_crop": lower case, digits, _ */
  const char* help; /* one line */
  int32_t random;   /* 1: depends on random numbers, so evaluation leaves it out */
  const millrace_param* params;
  size_t param_count;
  size_t param_size; /* sizeof(millrace_param) */
  /* Makes an instance from checked parameters and stores it in `self`. */
  millrace_status (*create)(const millrace_create* create, void** self);
  /* Frees an instance. */
  void (*destroy)(void* self);
  const millrace_geometric* geometric;
  const millrace_pixel* pixel;
  const millrace_filter* filter;
  const millrace_choice* choice;
  const millrace_batch* batch;
  const millrace_decoder* decoder;
  const millrace_reader* reader;
} millrace_unit;

/* The table that a plugin exports. It is constant and lives as long as the program. */
typedef struct millrace_plugin_table {
  uint64_t magic; /* MILLRACE_MAGIC */
  uint32_t abi_major;
  uint32_t abi_minor;
  size_t struct_size;
  const char* id;      /* "imgcodecs": lower case, digits, _ */
  const char* version; /* of the plugin and the codec behind it, as batches may depend on both */
  const char* licence; /* SPDX identifier */
  const millrace_unit* const* units;
  size_t unit_count;
} millrace_plugin_table;

/* Exported by every plugin under this name. */
extern const millrace_plugin_table millrace_plugin;

#ifdef __cplusplus
}
#endif
#endif
