// Visibility of the library's symbols. Everything is compiled with -fvisibility=hidden, so a symbol
// that carries no macro stays inside the library that defines it.
#pragma once

/// Marks a class or function that libmillrace_pipeline.so exports for its users.
#define MILLRACE_EXPORT __attribute__((visibility("default")))
