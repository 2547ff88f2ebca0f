// CUDA's memory: each allocation is charged in the shared table and refused at capacity; copies move the bytes at once.
// Device memory is host memory that costs nothing until it is written.
#include "standin.h"
#include <cuda_runtime_api.h>
#include <pthread.h>
#include "core.h"

#define API cudaError_t CUDARTAPI
#define FAIL(error) return (cudaError_t)standin_fail(error)
#define NEED(condition, error) do { if (!(condition)) FAIL(error); } while (0)
#define NEED_DEVICE(device) do { int e = standin_usable(device); if (e) FAIL(e); } while (0)
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// ---- contexts and charges

static void leave(void) {
    for (int gpu = 0; gpu < MAX_GPUS; gpu++) {
        holder *mine = holding(getpid(), gpu, 0);
        if (!mine) continue;
        mine->bytes = 0;
        mine->pid = 0;
    }
}
static void note_context(int gpu) {
    char line[512], command[400] = "";
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? 0 : read(file, command, sizeof command - 1);
    if (file >= 0) close(file);
    for (ssize_t i = 0; i + 1 < got; i++)
        if (!command[i] || command[i] == '\n') command[i] = ' ';
    snprintf(line, sizeof line, "%d %d %s\n", getpid(), gpu, command);
    append("STANDIN_CONTEXTS", line);
}
holder *standin_context(int device) {
    int gpu = standin_physical(device);
    holder *mine = holding(getpid(), gpu, 0);
    if (mine) return mine;
    static int leaving;
    if (!leaving) leaving = 1, atexit(leave);
    mine = holding(getpid(), gpu, 1);
    if (mine) mine->bytes = setting("STANDIN_CONTEXT_BYTES", 450L << 20);
    note_context(gpu);
    return mine;
}
int standin_has_context(int device) { return holding(getpid(), standin_physical(device), 0) != NULL; }
int standin_charge(int device, long bytes) {
    pthread_mutex_lock(&lock);
    holder *mine = standin_context(device);
    // as Windows' driver does: what does not fit goes to the host's memory, and nobody is told
    int fits = bytes <= 0 || setting("STANDIN_SPILL", 0) || used_by_all(standin_physical(device)) + bytes <= slice();
    if (fits && mine) mine->bytes += bytes;
    pthread_mutex_unlock(&lock);
    return fits;
}

// ---- what lies where: blocks in the order of their addresses

static block *blocks;
static int block_count, block_room;
static int place_of(const void *at) {  // the first block that ends after `at`
    int low = 0, high = block_count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (blocks[middle].at + blocks[middle].size > (const char *)at) high = middle;
        else low = middle + 1;
    }
    return low;
}
static void record(block made) {
    pthread_mutex_lock(&lock);
    if (block_count == block_room) {
        block_room = block_room * 2 + 64;
        blocks = realloc(blocks, (size_t)block_room * sizeof *blocks);
    }
    int place = place_of(made.at);
    memmove(blocks + place + 1, blocks + place, (size_t)(block_count++ - place) * sizeof *blocks);
    blocks[place] = made;
    pthread_mutex_unlock(&lock);
}
void standin_record(void *at, size_t size, int kind, int device, long charged) {
    record((block){at, size, kind, device, charged, 0});
}
int standin_find(const void *at, block *out) {
    pthread_mutex_lock(&lock);
    int place = place_of(at), found = place < block_count && blocks[place].at <= (const char *)at;
    if (found) *out = blocks[place];
    pthread_mutex_unlock(&lock);
    return found;
}
int standin_forget(void *at) {
    block was;
    if (!standin_find(at, &was) || was.at != at) return 0;
    pthread_mutex_lock(&lock);
    int place = place_of(at);
    memmove(blocks + place, blocks + place + 1, (size_t)(--block_count - place) * sizeof *blocks);
    pthread_mutex_unlock(&lock);
    if (was.charged) standin_charge(was.device, -was.charged);
    return 1;
}
static int on_gpu(const void *at) {
    block was;
    return standin_find(at, &was) && was.kind == cudaMemoryTypeDevice;
}
static int pageable(const void *at) {
    block was;
    return !standin_find(at, &was);
}

// ---- allocation

static void *pages(size_t size) {
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}
static API take(void **out, size_t size) {
    int device = standin_device();
    NEED_DEVICE(device);
    *out = NULL;
    if (!size) return 0;
    long taken = (long)((size + GRANULE - 1) / GRANULE * GRANULE), charged = (long)(taken * rate("STANDIN_TAKES", 1));
    NEED(standin_charge(device, charged), cudaErrorMemoryAllocation);
    if (!(*out = pages((size_t)taken))) {
        standin_charge(device, -charged);
        FAIL(cudaErrorMemoryAllocation);
    }
    standin_record(*out, (size_t)taken, cudaMemoryTypeDevice, device, charged);
    return 0;
}
static void give_to_pool(int device, long bytes);
static API give(void *at) {
    block was;
    if (!at) return 0;
    NEED(standin_find(at, &was) && was.at == at, cudaErrorInvalidValue);
    standin_settle();
    standin_forget(at);
    munmap(at, was.size);
    if (was.pooled) give_to_pool(was.device, was.pooled);
    return 0;
}
// A device's pool for cudaMallocAsync: what is freed stays reserved, and charged, until a synchronisation finds more of it
// than the threshold, or a trim. Free bytes of a pool fit any request, as if it never were in pieces.
#define PIECE (32L << 20)  // a pool grows by so much where that fits, else by what is asked for
#define POOLED 512L
typedef struct { long used, reserved, most_used, most_reserved; uint64_t threshold; int reuse[3]; } pool;
static pool pools[MAX_GPUS];
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static long whole(long bytes, long of) { return (bytes + of - 1) / of * of; }
static long charge_of(long bytes) { return (long)((double)bytes * rate("STANDIN_TAKES", 1)); }
static int grow(pool *p, int device, long bytes) {
    long sizes[2] = {whole(bytes, PIECE), whole(bytes, GRANULE)};
    for (int i = 0; i < 2; i++) {
        if (!standin_charge(device, charge_of(sizes[i]))) continue;
        p->reserved += sizes[i];
        if (p->reserved > p->most_reserved) p->most_reserved = p->reserved;
        return 1;
    }
    return 0;
}
static void shrink(pool *p, int device, long keep) {  // to so many bytes, or to what is in use
    long free_bytes = p->reserved - whole(p->used > keep ? p->used : keep, GRANULE);
    if (free_bytes <= 0) return;
    p->reserved -= free_bytes;
    standin_charge(device, -charge_of(free_bytes));
}
void standin_trim(void) {
    for (int device = 0; device < MAX_GPUS; device++) {
        pool *p = &pools[device];
        if ((uint64_t)p->reserved <= p->threshold) continue;
        pthread_mutex_lock(&pool_lock);
        shrink(p, device, (long)p->threshold);
        pthread_mutex_unlock(&pool_lock);
    }
}
static void give_to_pool(int device, long bytes) {
    pthread_mutex_lock(&pool_lock);
    pools[device].used -= bytes;
    pthread_mutex_unlock(&pool_lock);
}
static API take_from_pool(void **out, size_t size, int device) {
    NEED_DEVICE(device);
    *out = NULL;
    if (!size) return 0;
    long bytes = whole((long)size, POOLED);
    pool *p = &pools[device];
    pthread_mutex_lock(&pool_lock);
    int fits = p->used + bytes <= p->reserved || grow(p, device, p->used + bytes - p->reserved);
    if (fits) p->used += bytes;
    if (p->used > p->most_used) p->most_used = p->used;
    pthread_mutex_unlock(&pool_lock);
    NEED(fits, cudaErrorMemoryAllocation);
    if (!(*out = pages(size))) {
        give_to_pool(device, bytes);
        FAIL(cudaErrorMemoryAllocation);
    }
    record((block){*out, size, cudaMemoryTypeDevice, device, 0, bytes});
    return 0;
}
API cudaMalloc(void **out, size_t size) { return take(out, size); }
API cudaFree(void *at) {
    if (!standin_usable(standin_device())) standin_context(standin_device());
    if (at) cudaDeviceSynchronize();
    return give(at);
}
API cudaMallocAsync(void **out, size_t size, cudaStream_t s) { return take_from_pool(out, size, standin_device()); }
API cudaFreeAsync(void *at, cudaStream_t s) { return give(at); }
API cudaMemGetInfo(size_t *available, size_t *total) {
    int device = standin_device();
    NEED_DEVICE(device);
    standin_context(device);
    long left = slice() - used_by_all(standin_physical(device));
    *total = (size_t)slice();
    *available = left < 0 ? 0 : (size_t)left;
    return 0;
}
API cudaHostAlloc(void **out, size_t size, unsigned flags) {
    NEED_DEVICE(standin_device());
    NEED(*out = pages(size ? size : 1), cudaErrorMemoryAllocation);
    standin_record(*out, size ? size : 1, cudaMemoryTypeHost, standin_device(), 0);
    return 0;
}
API cudaMallocHost(void **out, size_t size) { return cudaHostAlloc(out, size, 0); }
API cudaFreeHost(void *at) { return give(at); }
API cudaHostRegister(void *at, size_t size, unsigned flags) {
    block was;
    NEED(!standin_find(at, &was), cudaErrorHostMemoryAlreadyRegistered);
    standin_record(at, size, cudaMemoryTypeHost, standin_device(), 0);
    return 0;
}
API cudaHostUnregister(void *at) {
    NEED(standin_forget(at), cudaErrorHostMemoryNotRegistered);
    return 0;
}
API cudaHostGetDevicePointer(void **out, void *at, unsigned flags) { *out = at; return 0; }
API cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *at) {
    block was;
    memset(out, 0, sizeof *out);
    out->hostPointer = (void *)at;
    out->device = -2;
    if (!standin_find(at, &was)) return 0;
    out->type = (enum cudaMemoryType)was.kind;
    out->device = was.device;
    out->devicePointer = (void *)at;
    if (was.kind == cudaMemoryTypeDevice) out->hostPointer = NULL;
    return 0;
}
API cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    *pool = (cudaMemPool_t)(size_t)(device + 1);
    return 0;
}
static int device_of(cudaMemPool_t p) { return (int)(size_t)p - 1; }
API cudaMemPoolGetAttribute(cudaMemPool_t of, enum cudaMemPoolAttr which, void *out) {
    pool *p = &pools[device_of(of)];
    switch ((int)which) {
    case cudaMemPoolReuseFollowEventDependencies: case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies: *(int *)out = !p->reuse[which - 1]; break;  // on at first
    case cudaMemPoolAttrReleaseThreshold: *(uint64_t *)out = p->threshold; break;
    case cudaMemPoolAttrReservedMemCurrent: *(uint64_t *)out = (uint64_t)p->reserved; break;
    case cudaMemPoolAttrReservedMemHigh: *(uint64_t *)out = (uint64_t)p->most_reserved; break;
    case cudaMemPoolAttrUsedMemCurrent: *(uint64_t *)out = (uint64_t)p->used; break;
    case cudaMemPoolAttrUsedMemHigh: *(uint64_t *)out = (uint64_t)p->most_used; break;
    default: FAIL(cudaErrorInvalidValue);
    }
    return 0;
}
API cudaMemPoolSetAttribute(cudaMemPool_t of, enum cudaMemPoolAttr which, void *value) {
    pool *p = &pools[device_of(of)];
    uint64_t number = which < cudaMemPoolAttrReleaseThreshold ? (uint64_t)*(int *)value : *(uint64_t *)value;
    switch ((int)which) {
    case cudaMemPoolReuseFollowEventDependencies: case cudaMemPoolReuseAllowOpportunistic:
    case cudaMemPoolReuseAllowInternalDependencies: p->reuse[which - 1] = !number; break;
    case cudaMemPoolAttrReleaseThreshold: p->threshold = number; break;
    // a peak can be set to what is now, by 0, and to nothing else
    case cudaMemPoolAttrReservedMemHigh: NEED(!number, cudaErrorInvalidValue); p->most_reserved = p->reserved; break;
    case cudaMemPoolAttrUsedMemHigh: NEED(!number, cudaErrorInvalidValue); p->most_used = p->used; break;
    default: FAIL(cudaErrorInvalidValue);
    }
    return 0;
}
API cudaMemPoolSetAccess(cudaMemPool_t p, const struct cudaMemAccessDesc *d, size_t n) { return 0; }
API cudaMemPoolTrimTo(cudaMemPool_t of, size_t keep) {
    pthread_mutex_lock(&pool_lock);
    shrink(&pools[device_of(of)], device_of(of), (long)keep);
    pthread_mutex_unlock(&pool_lock);
    return 0;
}

// ---- copies

void standin_zeros(char *at, size_t size) {  // whole pages are handed back, so zeros cost nothing
    char *from = (char *)(((size_t)at + 4095) & ~4095UL), *to = (char *)(((size_t)at + size) & ~4095UL);
    if (to <= from + (1 << 20)) {
        memset(at, 0, size);
        return;
    }
    memset(at, 0, (size_t)(from - at));
    if (madvise(from, (size_t)(to - from), MADV_DONTNEED)) memset(from, 0, (size_t)(to - from));
    memset(to, 0, (size_t)(at + size - to));
}
static void copy_pages(char *to, const char *from, size_t size) {
    const size_t step = 1 << 21;
    if (size < 2 * step || (size_t)from % 4096 || (size_t)to % 4096 || !on_gpu(from) || !on_gpu(to)) {
        memmove(to, from, size);
        return;
    }
    for (size_t done = 0; done < size; done += step) {  // what was never written is not copied either
        size_t part = size - done < step ? size - done : step;
        unsigned char there[512] = {0};
        int any = mincore((char *)from + done, part, there) != 0;
        for (size_t i = 0; i < (part + 4095) / 4096; i++) any |= there[i] & 1;
        if (any) memmove(to + done, from + done, part);
        else standin_zeros(to + done, part);
    }
}
static void copy(char *to, const char *from, size_t size) {
    long before = nanoseconds();
    copy_pages(to, from, size);
    standin_aside(nanoseconds() - before);
}
static double copy_ns(const void *to, const void *from, size_t size) {
    block source, target;
    int is_source = standin_find(from, &source) && source.kind == cudaMemoryTypeDevice;
    int is_target = standin_find(to, &target) && target.kind == cudaMemoryTypeDevice;
    double bytes = (double)size, latency = 2000;
    if (!is_source || !is_target) return latency + bytes / rate("STANDIN_PCIE_GBPS", 20);
    if (source.device != target.device) return latency + bytes / rate("STANDIN_PEER_GBPS", 50);
    return latency + 2 * bytes / rate("STANDIN_GBPS", 1500);
}
API cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind, cudaStream_t s) {
    NEED_DEVICE(standin_device());
    if (!size) return 0;
    standin_settle();
    standin_occupy(s, copy_ns(to, from, size));
    int crosses = kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyHostToHost;
    if (crosses && (pageable(to) || pageable(from))) standin_await(s);
    copy(to, from, size);
    return 0;
}
API cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
    cudaError_t error = cudaMemcpyAsync(to, from, size, kind, NULL);
    if (!error) standin_await(NULL);
    return error;
}
API cudaMemcpyPeerAsync(void *to, int a, const void *from, int b, size_t size, cudaStream_t s) {
    return cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, s);
}
API cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                      enum cudaMemcpyKind kind, cudaStream_t s) {
    NEED_DEVICE(standin_device());
    standin_settle();
    for (size_t row = 0; row < height; row++)
        memmove((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
    standin_occupy(s, copy_ns(to, from, width * height));
    return 0;
}
API cudaMemsetAsync(void *to, int value, size_t size, cudaStream_t s) {
    NEED_DEVICE(standin_device());
    standin_settle();
    long before = nanoseconds();
    if (value) memset(to, value, size);
    else standin_zeros(to, size);
    standin_aside(nanoseconds() - before);
    standin_occupy(s, 2000 + (double)size / rate("STANDIN_GBPS", 1500));
    return 0;
}
API cudaMemset(void *to, int value, size_t size) { return cudaMemsetAsync(to, value, size, NULL); }
