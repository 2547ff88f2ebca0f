// The functions of CUDA's driver that PyTorch and gpudoc ask for, with the virtual memory that expandable segments use.
#include "standin.h"
#include <cuda.h>
#include "core.h"

#define API CUresult CUDAAPI
// the runtime's functions whose numbers and meaning are the driver's
int cudaDeviceGetAttribute(int *out, int which, int device);
int cudaDeviceSynchronize(void);
API cuInit(unsigned flags) { return standin_gpus() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE; }
API cuDriverGetVersion(int *out) { *out = (int)setting("STANDIN_DRIVER_CUDA", CUDA_VERSION); return 0; }
API cuDeviceGetCount(int *out) { *out = standin_gpus(); return 0; }
API cuDeviceGet(CUdevice *out, int which) {
    if (which < 0 || which >= standin_gpus()) return CUDA_ERROR_INVALID_DEVICE;
    *out = which;
    return 0;
}
API cuDeviceGetName(char *out, int size, CUdevice d) { snprintf(out, (size_t)size, "%s", gpu_name()); return 0; }
API cuDeviceGetUuid_v2(CUuuid *out, CUdevice d) { gpu_uuid(standin_physical(d), (unsigned char *)out); return 0; }
#undef cuDeviceGetUuid
API cuDeviceGetUuid(CUuuid *out, CUdevice d) { return cuDeviceGetUuid_v2(out, d); }
API cuDeviceTotalMem(size_t *out, CUdevice d) { *out = (size_t)slice(); return 0; }
API cuDeviceGetPCIBusId(char *out, int size, CUdevice d) {
    snprintf(out, (size_t)size, "0000:%02X:00.0", 0x10 + standin_physical(d));
    return 0;
}
API cuDeviceGetAttribute(int *out, CUdevice_attribute which, CUdevice d) {
    if (which == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) {
        *out = 1;
        return 0;
    }
    return (CUresult)cudaDeviceGetAttribute(out, (int)which, d);
}

// ---- contexts: each device's primary one, which its ordinal names

API cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active) {
    if (flags) *flags = 0;
    *active = standin_has_context(d);
    return 0;
}
API cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice d) {
    standin_context(d);
    *out = (CUcontext)(size_t)(d + 1);
    return 0;
}
API cuDevicePrimaryCtxRelease(CUdevice d) { return 0; }
API cuCtxGetCurrent(CUcontext *out) { *out = (CUcontext)(size_t)(standin_device() + 1); return 0; }
API cuCtxSetCurrent(CUcontext c) { return 0; }
API cuCtxGetDevice(CUdevice *out) { *out = standin_device(); return 0; }
API cuGetErrorString(CUresult e, const char **out) {
    *out = e == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : e ? "unknown error" : "no error";
    return 0;
}
API cuGetErrorName(CUresult e, const char **out) {
    *out = e == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : e ? "CUDA_ERROR_UNKNOWN" : "CUDA_SUCCESS";
    return 0;
}

// ---- virtual memory: an address is reserved without access, memory is charged when created, access comes once mapped

typedef struct { size_t size; int device; } piece;
API cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *p, CUmemAllocationGranularity_flags f) {
    *out = GRANULE;
    return 0;
}
API cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t align, CUdeviceptr hint, unsigned long long flags) {
    char *at = mmap(NULL, size + GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    *out = ((CUdeviceptr)at + GRANULE - 1) / GRANULE * GRANULE;
    return 0;
}
API cuMemAddressFree(CUdeviceptr at, size_t size) { munmap((void *)at, size); return 0; }
typedef CUmemGenericAllocationHandle handle_of_piece;
API cuMemCreate(handle_of_piece *out, size_t size, const CUmemAllocationProp *p, unsigned long long flags) {
    if (!standin_charge(p->location.id, (long)size)) return CUDA_ERROR_OUT_OF_MEMORY;
    piece *made = malloc(sizeof *made);
    *made = (piece){size, p->location.id};
    *out = (handle_of_piece)(size_t)made;
    return 0;
}
API cuMemMap(CUdeviceptr at, size_t size, size_t offset, handle_of_piece handle, unsigned long long flags) {
    standin_record((void *)at, size, CU_MEMORYTYPE_DEVICE, ((piece *)(size_t)handle)->device, 0);
    return 0;
}
API cuMemSetAccess(CUdeviceptr at, size_t size, const CUmemAccessDesc *d, size_t count) {
    return mprotect((void *)at, size, PROT_READ | PROT_WRITE) ? CUDA_ERROR_INVALID_VALUE : 0;
}
API cuMemRelease(handle_of_piece handle) {  // PyTorch has unmapped it before
    piece *was = (piece *)(size_t)handle;
    standin_charge(was->device, -(long)was->size);
    free(was);
    return 0;
}
API cuMemUnmap(CUdeviceptr at, size_t size) {
    cudaDeviceSynchronize();
    for (CUdeviceptr place = at; place < at + size;) {
        block was;
        if (!standin_find((void *)place, &was) || was.at != (char *)place) return CUDA_ERROR_INVALID_VALUE;
        standin_forget(was.at);
        madvise(was.at, was.size, MADV_DONTNEED);
        mprotect(was.at, was.size, PROT_NONE);
        place += was.size;
    }
    return 0;
}
API cuMemGetAddressRange(CUdeviceptr *base, size_t *size, CUdeviceptr at) {
    block was;
    if (!standin_find((void *)at, &was)) return CUDA_ERROR_NOT_FOUND;
    if (base) *base = (CUdeviceptr)was.at;
    if (size) *size = was.size;
    return 0;
}
API cuPointerGetAttribute(void *out, CUpointer_attribute which, CUdeviceptr at) { *(uint64_t *)out = 0; return 0; }

// ---- what is compiled while a program runs: it loads, takes its time, and computes nothing

API cuModuleLoadData(CUmodule *out, const void *image) { *out = (CUmodule)1; return 0; }
API cuModuleGetFunction(CUfunction *out, CUmodule m, const char *name) { *out = (CUfunction)1; return 0; }
API cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, CUstream s, void **args, void **extra) {
    standin_occupy(s, 2500);
    return 0;
}
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *out, CUfunction f, int block, size_t shared) {
    *out = 2;
    return 0;
}
