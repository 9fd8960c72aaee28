/* Functions that glibc got after the oldest one that we load on, for us alone. */
#define _GNU_SOURCE
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OURS __attribute__((visibility("hidden")))

#ifdef __x86_64__
/* Elsewhere zig links, whose glibc has these of its own. */

/* What these functions were until glibc 2.33. `struct stat` and `struct stat64` are one on this
   architecture, and its version is 1. */
extern int __xstat64(int, const char *, void *);
extern int __lxstat64(int, const char *, void *);
extern int __fxstat64(int, int, void *);
extern int __fxstatat64(int, int, const char *, void *, int);

OURS int stat(const char *path, struct stat *to) { return __xstat64(1, path, to); }
OURS int lstat(const char *path, struct stat *to) { return __lxstat64(1, path, to); }
OURS int fstat(int file, struct stat *to) { return __fxstat64(1, file, to); }
OURS int fstatat(int folder, const char *path, struct stat *to, int flags)
{
    return __fxstatat64(1, folder, path, to, flags);
}
OURS int stat64(const char *path, struct stat64 *to) { return __xstat64(1, path, to); }
OURS int lstat64(const char *path, struct stat64 *to) { return __lxstat64(1, path, to); }
OURS int fstat64(int file, struct stat64 *to) { return __fxstat64(1, file, to); }
OURS int fstatat64(int folder, const char *path, struct stat64 *to, int flags)
{
    return __fxstatat64(1, folder, path, to, flags);
}

#endif

/* glibc 2.30 */
OURS pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }
