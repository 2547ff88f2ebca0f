// CUDA's runtime without a GPU: which devices there are, what they say of themselves, and errors that stay.
#include "standin.h"
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include "core.h"

#define API cudaError_t CUDARTAPI
static __thread cudaError_t last_error;
static __thread int current;
static _Atomic int fault;  // once a kernel has failed, every call says so until the process ends

// ---- which GPUs this process sees

static int visible[MAX_GPUS], visible_count = -1;
static int owner;  // the process that asked first: as with a driver, what is forked from it later cannot go on
static int named_by_uuid(const char *entry, size_t length) {
    for (int gpu = 0; gpu < gpus_present(); gpu++) {
        unsigned char uuid[16];
        char text[48];
        gpu_uuid(gpu, uuid);
        uuid_text("GPU", uuid, text, sizeof text);
        if (length > 4 && length <= strlen(text) && !strncmp(entry, text, length)) return gpu;
    }
    return -1;
}
int standin_gpus(void) {
    if (visible_count >= 0) return visible_count;
    owner = getpid();
    // with MIG a process sees one GPU, the first instance unless it names another
    int present = gpus_present(), count = 0, most = setting("STANDIN_MIG", 0) > 0 ? 1 : MAX_GPUS;
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (!list) {
        for (; count < present && count < most; count++) visible[count] = count;
        return visible_count = count;
    }
    while (*list && count < most) {
        size_t length = strcspn(list, ",");
        char *end;
        long which = strtol(list, &end, 10);
        if (!strncmp(list, "GPU-", 4)) which = named_by_uuid(list, length);
        else if (end == list) which = -1;
        if (which < 0 || which >= present) break;  // as the driver: what follows a bad entry is not seen
        visible[count++] = (int)which;
        list += length + (list[length] == ',');
    }
    return visible_count = count;
}
int standin_physical(int device) { return visible[device]; }
int standin_device(void) { return current; }
void standin_use(int device) { current = device; }
int standin_capability(int minor) {
    int parts[2] = {9, 0};
    sscanf(wording("STANDIN_CC", "9.0"), "%d.%d", &parts[0], &parts[1]);
    return parts[minor];
}

// ---- errors

int standin_fail(int error) {
    last_error = (cudaError_t)error;
    return error;
}
int standin_fault_so_far(void) { return fault; }
void standin_fault(int error) {
    int none = 0;
    atomic_compare_exchange_strong(&fault, &none, error);
}
int standin_usable(int device) {
    if (fault) return fault;
    if (!standin_gpus()) return cudaErrorNoDevice;
    if (owner != getpid()) return cudaErrorInitializationError;
    if (device < 0 || device >= standin_gpus()) return cudaErrorInvalidDevice;
    if (is_lost(visible[device])) standin_fault(cudaErrorUnknown);
    if (setting("STANDIN_EXCLUSIVE", 0) && is_taken(visible[device])) return cudaErrorDevicesUnavailable;
    return fault;
}
#define NEED_DEVICE(device) do { int e = standin_usable(device); if (e) return (cudaError_t)standin_fail(e); } while (0)

// STANDIN_FAULT=illegal, assert, ecc, launch or lost, after STANDIN_FAULT_AFTER kernels on GPU STANDIN_FAULT_GPU
void standin_count_launch(int device) {
    static const struct { const char *name; int error; } kinds[] = {
        {"illegal", cudaErrorIllegalAddress}, {"assert", cudaErrorAssert}, {"ecc", cudaErrorECCUncorrectable},
        {"launch", cudaErrorLaunchFailure}, {"lost", cudaErrorUnknown}};
    static _Atomic long launches;
    long after = setting("STANDIN_FAULT_AFTER", -1), only = setting("STANDIN_FAULT_GPU", -1);
    if (after < 0 || (only >= 0 && only != visible[device]) || atomic_fetch_add(&launches, 1) < after) return;
    const char *kind = wording("STANDIN_FAULT", "illegal");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, kind)) standin_fault(kinds[i].error);
    if (!strcmp(kind, "ecc")) table()->gpus[visible[device]].ecc_errors = 1;
    if (!strcmp(kind, "lost")) table()->gpus[visible[device]].lost = 1;
}

API cudaGetLastError(void) {
    cudaError_t error = fault ? (cudaError_t)fault : last_error;
    last_error = 0;
    return error;
}
API cudaPeekAtLastError(void) { return fault ? (cudaError_t)fault : last_error; }
static const struct { int code; const char *name, *text; } errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorMissingConfiguration, "cudaErrorMissingConfiguration", "__global__ function call is not configured"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"}};
static int row_of(int code) {
    int last = sizeof errors / sizeof *errors - 1;
    for (int i = 0; i < last; i++) if (errors[i].code == code) return i;
    return last;
}
const char *cudaGetErrorName(cudaError_t e) { return errors[row_of((int)e)].name; }
const char *cudaGetErrorString(cudaError_t e) { return errors[row_of((int)e)].text; }

// ---- devices

API cudaGetDeviceCount(int *out) {
    *out = standin_gpus();
    if (owner != getpid()) return (cudaError_t)standin_fail(cudaErrorInitializationError);
    return *out ? 0 : (cudaError_t)standin_fail(cudaErrorNoDevice);
}
API cudaGetDevice(int *out) {
    if (!standin_gpus()) return (cudaError_t)standin_fail(cudaErrorNoDevice);
    *out = current;
    return 0;
}
API cudaSetDevice(int device) {
    NEED_DEVICE(device);
    current = device;
    standin_context(device);
    return 0;
}
API cudaRuntimeGetVersion(int *out) { *out = CUDART_VERSION; return 0; }
API cudaDriverGetVersion(int *out) { *out = (int)setting("STANDIN_DRIVER_CUDA", CUDART_VERSION); return 0; }
API cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    NEED_DEVICE(device);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s%s", gpu_name(), setting("STANDIN_MIG", 0) > 0 ? " MIG 1g" : "");
    gpu_uuid(visible[device], (unsigned char *)&p->uuid);
    p->totalGlobalMem = (size_t)slice();
    p->major = standin_capability(0);
    p->minor = standin_capability(1);
    p->multiProcessorCount = (int)setting("STANDIN_SMS", 132);
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 32;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->sharedMemPerBlock = 49152;
    p->sharedMemPerBlockOptin = 232448;
    p->sharedMemPerMultiprocessor = 233472;
    p->reservedSharedMemPerBlock = 1024;
    p->totalConstMem = 65536;
    p->memPitch = 2147483647;
    p->textureAlignment = 512;
    p->l2CacheSize = 50 << 20;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->memoryBusWidth = 5120;
    p->concurrentKernels = p->unifiedAddressing = p->canMapHostMemory = p->managedMemory = p->cooperativeLaunch = 1;
    p->asyncEngineCount = 3;
    p->pciBusID = 0x10 + visible[device];
    p->ECCEnabled = 1;
    p->integrated = (int)setting("STANDIN_INTEGRATED", 0);
#if CUDART_VERSION < 13000
    p->clockRate = 1980000, p->memoryClockRate = 2619000;
#endif
    return 0;
}
API cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr which, int device) {
    struct cudaDeviceProp p;
    cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error) return error;
    switch ((int)which) {
    case cudaDevAttrMaxThreadsPerBlock: *out = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxBlockDimX: case cudaDevAttrMaxBlockDimY: *out = p.maxThreadsDim[0]; break;
    case cudaDevAttrMaxBlockDimZ: *out = p.maxThreadsDim[2]; break;
    case cudaDevAttrMaxGridDimX: *out = p.maxGridSize[0]; break;
    case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: *out = p.maxGridSize[1]; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *out = (int)p.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *out = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *out = (int)p.sharedMemPerMultiprocessor; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *out = (int)p.reservedSharedMemPerBlock; break;
    case cudaDevAttrWarpSize: *out = p.warpSize; break;
    case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: *out = p.regsPerBlock; break;
    case cudaDevAttrClockRate: *out = 1980000; break;
    case cudaDevAttrMemoryClockRate: *out = 2619000; break;
    case cudaDevAttrGlobalMemoryBusWidth: *out = p.memoryBusWidth; break;
    case cudaDevAttrMultiProcessorCount: *out = p.multiProcessorCount; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *out = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *out = p.maxBlocksPerMultiProcessor; break;
    case cudaDevAttrComputeCapabilityMajor: *out = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *out = p.minor; break;
    case cudaDevAttrL2CacheSize: *out = p.l2CacheSize; break;
    case cudaDevAttrIntegrated: *out = p.integrated; break;
    case cudaDevAttrPciBusId: *out = p.pciBusID; break;
    case cudaDevAttrUnifiedAddressing: case cudaDevAttrCooperativeLaunch: case cudaDevAttrConcurrentKernels:
    case cudaDevAttrMemoryPoolsSupported:
        *out = 1;
        break;
    default: *out = 0;
    }
    return 0;
}
API cudaDeviceGetPCIBusId(char *out, int size, int device) {
    NEED_DEVICE(device);
    snprintf(out, (size_t)size, "0000:%02X:00.0", 0x10 + visible[device]);
    return 0;
}
API cudaDeviceCanAccessPeer(int *out, int device, int peer) {
    NEED_DEVICE(device);
    NEED_DEVICE(peer);
    *out = device != peer && setting("STANDIN_PEERS", 1);
    return 0;
}
API cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    static char enabled[MAX_GPUS][MAX_GPUS];
    NEED_DEVICE(peer);
    if (enabled[current][peer]) return (cudaError_t)standin_fail(cudaErrorPeerAccessAlreadyEnabled);
    enabled[current][peer] = 1;
    return 0;
}
API cudaDeviceReset(void) { return 0; }
API cudaProfilerStart(void) { return 0; }
API cudaProfilerStop(void) { return 0; }

// ---- the way to the driver's functions, which this library has too

void standin_trace(const char *kind, const char *name) {
    static int wanted = -1;
    if (wanted < 0) wanted = getenv("STANDIN_TRACE") != NULL;
    if (!wanted) return;
    char line[4096];
    snprintf(line, sizeof line, "%s%s\n", kind, name);
    append("STANDIN_TRACE", line);
}
static int not_supported(void) { return cudaErrorNotSupported; }
static API entry(const char *name, void **out, enum cudaDriverEntryPointQueryResult *found) {
    static void *self;
    Dl_info info;
    if (!self && dladdr((void *)&cudaGetLastError, &info)) self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    char second[128];
    snprintf(second, sizeof second, "%s_v2", name);
    if (!(*out = dlsym(self, name))) *out = dlsym(self, second);
    if (!*out) {
        standin_trace("not written: ", name);
        *out = (void *)&not_supported;
    }
    if (found) *found = cudaDriverEntryPointSuccess;
    return 0;
}
#undef cudaGetDriverEntryPoint
API cudaGetDriverEntryPoint(const char *name, void **out, unsigned long long flags,
                            enum cudaDriverEntryPointQueryResult *found) {
    return entry(name, out, found);
}
API cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned version, unsigned long long flags,
                                     enum cudaDriverEntryPointQueryResult *found) {
    return entry(name, out, found);
}
