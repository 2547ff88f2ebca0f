/* Preloaded into a worker: refusals of open(), sizes of file systems and limits that a test cannot make for real. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "scenario.h"

static int rule_for(const char *what, const char *path, const char **value) {
    char name[96];
    const char *root = getenv("FAKE_ROOT");
    if (!path || !root || strncmp(path, root, strlen(root))) return 0;
    snprintf(name, sizeof name, "%s:%s", what, path + strlen(root));
    return obey(name, -2, 0, value);
}

int open64(const char *path, int flags, ...) {
    static int (*real)(const char *, int, ...);
    va_list list;
    va_start(list, flags);
    mode_t mode = (flags & O_CREAT) ? va_arg(list, mode_t) : 0;
    va_end(list);
    if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    int refusal = rule_for("open", path, NULL);
    if (refusal) { errno = refusal; return -1; }
    return real(path, flags, mode);
}

int statvfs64(const char *path, struct statvfs64 *out) {
    static int (*real)(const char *, struct statvfs64 *);
    const char *value = NULL;
    if (!real) real = (int (*)(const char *, struct statvfs64 *))dlsym(RTLD_NEXT, "statvfs64");
    int answer = real(path, out);
    rule_for("statvfs", path, &value);
    if (!value) obey("statvfs", -2, 0, &value);
    if (value) { out->f_frsize = 1; out->f_blocks = strtoull(value, NULL, 0); out->f_bavail = out->f_blocks; return 0; }
    return answer;
}

int getrlimit64(__rlimit_resource_t which, struct rlimit64 *out) {
    static int (*real)(__rlimit_resource_t, struct rlimit64 *);
    char name[32];
    const char *value = NULL;
    if (!real) real = (int (*)(__rlimit_resource_t, struct rlimit64 *))dlsym(RTLD_NEXT, "getrlimit64");
    snprintf(name, sizeof name, "getrlimit:%d", (int)which);
    int answer = real(which, out);
    obey(name, -2, 0, &value);
    if (value) out->rlim_cur = strtoull(value, NULL, 0);
    return answer;
}
