// Suppressions for the sanitizers, linked into every test: reports about libraries that Debian
// ships uninstrumented. No line names our own code.
//
// ThreadSanitizer does not see the atomics by which libtbb hands tasks over, and so takes TBB's own
// reads and writes for races. Only accesses made by TBB's code itself (the innermost frame, by the
// name of its function or, for "operator()", by its file) are suppressed; accesses by our
// functions, called from a task or not, are still checked.
//
// The sanitizers look these functions up by name, so they must be visible.

extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions() {
  return "race_top:^tbb::detail::\n"
         "race_top:^void tbb::detail::\n"
         "race_top:^bool tbb::detail::\n"
         "race_top:^non-virtual thunk to tbb::detail::\n"
         "race_top:/oneapi/tbb/\n"
         // TBB's counts, locks and lists of neighbours, whose innermost frame is the standard
         // library's. They do not call our code: a node's body runs in its own task.
         "race:^tbb::detail::d1::wait_context::release\n"
         "race:^tbb::detail::d1::wait_context::add_reference\n"
         "race:^tbb::detail::d1::spin_mutex::\n"
         "race:^tbb::detail::d1::spin_rw_mutex::\n"
         "race:^tbb::detail::d1::broadcast_cache<\n"
         "race:^tbb::detail::d1::successor_cache<\n"
         "race:^tbb::detail::d1::predecessor_cache<\n"
         "race:^tbb::detail::d1::node_cache<\n"
         "race:^tbb::detail::d1::submit\n"
         "race:^tbb::detail::d1::graph::~graph\n"
         // TBB's list of observers, freed by the last thread that has seen it.
         "race:^tbb::detail::r1::observe\n"
         // Calls from libtbb.so itself: it frees and compares its own memory in other threads.
         "called_from_lib:libtbb.so\n"
         // glibc frees the thread-local storage of a thread that has ended and that TBB does not
         // join.
         "race:^__GI__dl_deallocate_tls\n"
         "race:^_dl_deallocate_tls\n"
         // GDAL, which Debian's OpenCV loads, takes two of its own locks in either order.
         "deadlock:libgdal.so\n";
}

extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  // A report whose other stack is forgotten cannot be matched by it: remembers as much as possible.
  return "history_size=7";
}

extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions() {
  // TBB keeps a record of an observer until every thread of the arena has passed it.
  return "leak:tbb::detail::r1::observe\n";
}

extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  // The runtime of g++ 12 guesses the extent of thread-local storage in libraries that are loaded
  // late from the bytes in front of it. A wrong guess crashes the leak check after the test passed.
  return "intercept_tls_get_addr=0";
}
