// What every library of the stand-in shares: settings from the environment, and one table, in memory that all processes
// share, of who holds how much of which GPU and of what has befallen each.
#pragma once
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_GPUS 16
#define HOLDERS 512
typedef struct { _Atomic int pid; int gpu; _Atomic long bytes; _Atomic long busy_until; } holder;
typedef struct { _Atomic int lost, ecc_errors; } condition;
typedef struct { holder holders[HOLDERS]; condition gpus[MAX_GPUS]; } shared_table;

// ---- settings

// "16G", "500M" or a plain number
static inline long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    if (!text || !*text) return otherwise;
    char *unit;
    double value = strtod(text, &unit);
    return (long)(value * (*unit == 'G' ? 1L << 30 : *unit == 'M' ? 1L << 20 : *unit == 'K' ? 1L << 10 : 1));
}
// a number with a fraction, as for speeds
static inline double rate(const char *name, double otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtod(text, NULL) : otherwise;
}
static inline const char *wording(const char *name, const char *otherwise) {
    const char *text = getenv(name);
    return text && *text ? text : otherwise;
}
static inline int gpus_present(void) {
    long count = setting("STANDIN_GPUS", 1);
    return count < 0 ? 0 : count > MAX_GPUS ? MAX_GPUS : (int)count;
}
static inline long capacity(void) { return setting("STANDIN_GPU_BYTES", 16L << 30); }
// with MIG a process has one instance, which has its part of the card
static inline long slice(void) {
    long instances = setting("STANDIN_MIG", 0);
    return instances > 0 ? capacity() / instances : capacity();
}
static inline const char *gpu_name(void) { return wording("STANDIN_NAME", "Stand-in GPU"); }
static inline void gpu_uuid(int gpu, unsigned char out[16]) {
    for (int i = 0; i < 16; i++) out[i] = (unsigned char)(0xa0 + gpu + i);
}
static inline void uuid_text(const char *kind, const unsigned char u[16], char *out, size_t size) {
    snprintf(out, size, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", kind, u[0], u[1],
             u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}
static inline long nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}
// one line at the end of the file that a setting names; each process and thread may write
static inline void append(const char *name, const char *line) {
    const char *path = getenv(name);
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (file < 0) return;
    if (write(file, line, strlen(line)) < 0) perror(path);
    close(file);
}

// ---- the shared table

static inline shared_table *table(void) {
    static shared_table *found;
    if (found) return found;
    char path[128];
    snprintf(path, sizeof path, "/dev/shm/standin-%d-%s", (int)getuid(), wording("STANDIN_STATE", "default"));
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *at = MAP_FAILED;
    struct stat has;
    // never made smaller: whoever has mapped more would die of it
    if (file >= 0 && !fstat(file, &has) && (has.st_size >= (off_t)sizeof *found || !ftruncate(file, sizeof *found)))
        at = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    found = at == MAP_FAILED ? calloc(1, sizeof *found) : at;
    return found;
}
static inline holder *holders(void) { return table()->holders; }
// a zombie holds nothing any more, as with a real driver
static inline int living(int pid) {
    char path[40], line[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t got = read(file, line, sizeof line - 1);
    close(file);
    char *after = got > 0 ? strrchr(line, ')') : NULL;
    return after && after[1] && after[2] != 'Z' && after[2] != 'X';
}
static inline holder *holding(int pid, int gpu, int make) {
    holder *rows = holders();
    for (int i = 0; i < HOLDERS; i++)
        if (rows[i].pid == pid && rows[i].gpu == gpu) return &rows[i];
    for (int i = 0; make && i < HOLDERS; i++) {
        int was = rows[i].pid;
        if ((!was || !living(was)) && atomic_compare_exchange_strong(&rows[i].pid, &was, pid)) {
            rows[i].gpu = gpu;
            rows[i].bytes = 0;
            rows[i].busy_until = 0;
            return &rows[i];
        }
    }
    return NULL;
}
static inline long used_by_all(int gpu) {
    long sum = 0;
    holder *rows = holders();
    for (int i = 0; i < HOLDERS; i++) {
        int pid = rows[i].pid;
        if (pid && rows[i].gpu == gpu && rows[i].bytes && (pid == getpid() || living(pid))) sum += rows[i].bytes;
    }
    return sum;
}
static inline int is_taken(int gpu) {  // by another process
    for (int i = 0; i < HOLDERS; i++) {
        int pid = holders()[i].pid;
        if (pid && pid != getpid() && holders()[i].gpu == gpu && living(pid)) return 1;
    }
    return 0;
}
static inline int is_lost(int gpu) { return table()->gpus[gpu].lost || setting("STANDIN_LOST", -1) == gpu; }
