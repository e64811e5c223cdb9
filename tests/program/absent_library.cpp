// Makes a library with one symbol, whose name the build gives.
extern "C" int ABSENT() { return 0; }
