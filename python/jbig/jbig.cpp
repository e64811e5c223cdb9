// Stands in for JBIG-KIT in wheels: libtiff needs its functions, but it is licensed under the GPL
// and no data set is compressed with JBIG. Decoding such a TIFF fails with jbg_strerror()'s text.
#include <cstddef>

extern "C" {

__attribute__((visibility("default"))) void jbg_dec_init(void*) {}
__attribute__((visibility("default"))) int jbg_dec_in(void*, unsigned char*, std::size_t,
                                                      std::size_t*) {
  constexpr int kFailed = 1;
  return kFailed;
}
__attribute__((visibility("default"))) void jbg_dec_free(void*) {}
__attribute__((visibility("default"))) unsigned char* jbg_dec_getimage(const void*, int) {
  return nullptr;
}
__attribute__((visibility("default"))) unsigned long jbg_dec_getsize(const void*) { return 0; }
__attribute__((visibility("default"))) void jbg_enc_init(
    void*, unsigned long, unsigned long, int, unsigned char**,
    void (*)(unsigned char*, std::size_t, void*), void*) {}
__attribute__((visibility("default"))) void jbg_enc_out(void*) {}
__attribute__((visibility("default"))) void jbg_enc_free(void*) {}
__attribute__((visibility("default"))) int jbg_newlen(unsigned char*, std::size_t) { return 0; }
__attribute__((visibility("default"))) const char* jbg_strerror(int) {
  return "JBIG is not supported";
}

}  // extern "C"
