/* Included in every file: selects the oldest versions of symbols that glibc 2.34 moved into libc.so.6. */
#if defined(__x86_64__)
#define OLDEST "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define OLDEST "GLIBC_2.17"
#endif
#define OLD(name) __asm__(".symver " #name "," #name "@" OLDEST);
OLD(dlopen) OLD(dlsym) OLD(dlerror) OLD(dlclose)
OLD(pthread_create) OLD(pthread_join) OLD(pthread_once)
OLD(pthread_mutex_trylock) OLD(pthread_mutexattr_init) OLD(pthread_mutexattr_settype) OLD(pthread_mutexattr_destroy)
