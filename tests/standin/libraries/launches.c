// CUDA's kernel launches: a kernel is known by its name, takes its modelled time, and but for a few computes nothing.
#include "standin.h"
#include <cuda_runtime_api.h>
#include <pthread.h>
#include "core.h"

#define API cudaError_t CUDARTAPI
#define FAIL(error) return (cudaError_t)standin_fail(error)
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

// ---- registration, as nvcc's host code calls it while a library is loaded

typedef struct { const void *function; const char *name; } kernel;
static kernel *kernels;
static size_t kernel_count, kernel_room, kernel_sorted;
void **__cudaRegisterFatBinary(void *binary) { return binary; }
void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle) {}
char __cudaInitModule(void **handle) { return 1; }
void __cudaRegisterVar(void **handle, char *var, char *address, const char *name, int ext, size_t size, int constant,
                       int global) {}
void __cudaRegisterFunction(void **handle, const char *function, char *device_function, const char *name, int limit,
                            void *thread, void *block, void *blocks, void *grid, int *warp) {
    if (kernel_count == kernel_room) {
        kernel_room = kernel_room * 2 + 65536;
        kernels = realloc(kernels, kernel_room * sizeof *kernels);
    }
    kernels[kernel_count++] = (kernel){function, name};
}
static int by_function(const void *a, const void *b) {
    const char *x = ((const kernel *)a)->function, *y = ((const kernel *)b)->function;
    return x < y ? -1 : x > y;
}
const char *standin_kernel_name(const void *function) {
    pthread_mutex_lock(&lock);
    if (kernel_sorted != kernel_count) qsort(kernels, kernel_sorted = kernel_count, sizeof *kernels, by_function);
    kernel key = {function, NULL}, *found = bsearch(&key, kernels, kernel_count, sizeof *kernels, by_function);
    pthread_mutex_unlock(&lock);
    return found ? found->name : "?";
}

// ---- launches

static __thread struct { dim3 grid, block; size_t shared; cudaStream_t stream; } calls[8];
static __thread int depth;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
    if (depth == 8) return cudaErrorMissingConfiguration;
    calls[depth].grid = grid;
    calls[depth].block = block;
    calls[depth].shared = shared;
    calls[depth++].stream = stream;
    return 0;
}
API __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    if (!depth) FAIL(cudaErrorMissingConfiguration);
    depth--;
    *grid = calls[depth].grid;
    *block = calls[depth].block;
    *shared = calls[depth].shared;
    *(cudaStream_t *)stream = calls[depth].stream;
    return 0;
}
API cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s) {
    double threads = (double)grid.x * grid.y * grid.z * block.x * block.y * block.z;
    int device = standin_device(), error = standin_usable(device);
    if (error) FAIL(error);
    if (threads <= 0 || (long)block.x * block.y * block.z > 1024 || grid.y > 65535 || grid.z > 65535 || shared > 232448)
        FAIL(cudaErrorInvalidConfiguration);
    const char *name = standin_kernel_name(function);
    standin_trace("", name);
    standin_count_launch(device);
    // where nobody knows the bytes it moves: 32 for each thread
    double moving = standin_operator_is_open() ? 0 : threads * 32 / rate("STANDIN_GBPS", 1500);
    standin_occupy(s, rate("STANDIN_KERNEL_NS", 2500) + moving);
    long before = nanoseconds();
    standin_run(name, args, s);
    standin_aside(nanoseconds() - before);
    return 0;
}
API cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *function, void **args) {
    return cudaLaunchKernel(function, c->gridDim, c->blockDim, args, c->dynamicSmemBytes, c->stream);
}
API cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared,
                                cudaStream_t s) {
    return cudaLaunchKernel(function, grid, block, args, shared, s);
}
// what nvcc 13 calls instead
#undef __cudaGetKernel
#undef __cudaLaunchKernel
API __cudaGetKernel(const void **out, const void *function) { *out = function; return 0; }
API __cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t s) {
    return cudaLaunchKernel(function, grid, block, args, shared, s);
}

// ---- what a kernel may ask for

API cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *function) {
    memset(out, 0, sizeof *out);
    out->maxThreadsPerBlock = 1024;
    out->numRegs = 32;
    out->maxDynamicSharedSizeBytes = 49152;
    out->ptxVersion = out->binaryVersion = standin_capability(0) * 10 + standin_capability(1);
    return 0;
}
API cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute a, int value) { return 0; }
API cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, const void *function, int block, size_t shared,
                                                           unsigned flags) {
    int by_threads = 2048 / (block > 0 ? block : 1), by_shared = shared ? (int)(233472 / shared) : 32;
    *out = by_threads < by_shared ? by_threads : by_shared;
    if (*out > 32) *out = 32;
    return 0;
}
#undef cudaOccupancyMaxActiveBlocksPerMultiprocessor
API cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *out, const void *function, int block, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out, function, block, shared, 0);
}
