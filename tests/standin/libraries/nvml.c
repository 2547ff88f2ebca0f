// NVML's answers: memory, processes and faults from the shared table, the rest constants that a healthy GPU could give.
#include "standin.h"

typedef unsigned u32;
typedef unsigned long long u64;
enum { OK = 0, UNINITIALIZED = 1, BAD = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, NO_ROOM = 7, NO_DRIVER = 9, IS_LOST = 15 };
#define EVERY (MAX_GPUS + 1)  // handles of MIG instances are counted on from the GPUs': EVERY for each GPU
static int of(void *handle) { return ((int)(size_t)handle - 1) % EVERY; }
static int busy(int gpu) {
    long now = nanoseconds();
    for (int i = 0; i < HOLDERS; i++)
        if (holders()[i].pid && holders()[i].gpu == gpu && holders()[i].busy_until > now) return 1;
    return 0;
}
// every question about a lost GPU has this answer
#define ALIVE(h) do { if (is_lost(of(h))) return IS_LOST; } while (0)
#define ANSWER(name, type, value) int name(void *h, type *out) { ALIVE(h); *out = value; return OK; }
#define ABSENT(name) int name(void *h) { ALIVE(h); return NOT_SUPPORTED; }

int nvmlInit_v2(void) { return gpus_present() ? OK : NO_DRIVER; }
int nvmlInit(void) { return nvmlInit_v2(); }
int nvmlInitWithFlags(u32 flags) { return nvmlInit_v2(); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int e) {
    return e == OK ? "Success" : e == NOT_SUPPORTED ? "Not Supported" : e == IS_LOST ? "GPU is lost" : "Unknown Error";
}
int nvmlSystemGetDriverVersion(char *out, u32 size) {
    snprintf(out, size, "%s", wording("STANDIN_DRIVER", "580.82.07"));
    return OK;
}
int nvmlSystemGetNVMLVersion(char *out, u32 size) { snprintf(out, size, "13.580.82.07"); return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { *out = (int)setting("STANDIN_DRIVER_CUDA", 13000); return OK; }
int nvmlDeviceGetCount_v2(u32 *out) { *out = (u32)gpus_present(); return OK; }

// ---- who a GPU is

int nvmlDeviceGetHandleByIndex_v2(u32 which, void **out) {
    if (which >= (u32)gpus_present()) return BAD;
    *out = (void *)(size_t)(which + 1);
    ALIVE(*out);
    return OK;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **out) {
    u32 domain = 0, number = 0;
    if (sscanf(bus, "%x:%x", &domain, &number) != 2 || number < 0x10) return NOT_FOUND;
    return nvmlDeviceGetHandleByIndex_v2(number - 0x10, out) == BAD ? NOT_FOUND : OK;
}
int nvmlDeviceGetUUID(void *h, char *out, u32 size) {
    unsigned char uuid[16];
    ALIVE(h);
    gpu_uuid(of(h), uuid);
    uuid_text("GPU", uuid, out, size);
    return OK;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **out) {
    for (u32 gpu = 0; gpu < (u32)gpus_present(); gpu++) {
        char text[48];
        void *h = (void *)(size_t)(gpu + 1);
        if (nvmlDeviceGetUUID(h, text, sizeof text) || strcmp(text, uuid)) continue;
        *out = h;
        return OK;
    }
    return NOT_FOUND;
}
int nvmlDeviceGetName(void *h, char *out, u32 size) { ALIVE(h); snprintf(out, size, "%s", gpu_name()); return OK; }
int nvmlDeviceGetPciInfo_v3(void *h, char *out) {
    ALIVE(h);
    memset(out, 0, 68);
    snprintf(out, 16, "0000:%02X:00.0", 0x10 + of(h));
    *(u32 *)(out + 20) = 0x10u + (u32)of(h);
    snprintf(out + 36, 32, "00000000:%02X:00.0", 0x10 + of(h));
    return OK;
}
int nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor) {
    ALIVE(h);
    *major = 9, *minor = 0;
    sscanf(wording("STANDIN_CC", "9.0"), "%d.%d", major, minor);
    return OK;
}
ANSWER(nvmlDeviceGetIndex, u32, (u32)of(h))
ANSWER(nvmlDeviceGetMinorNumber, u32, (u32)of(h))
ANSWER(nvmlDeviceGetBrand, u32, 1)
ANSWER(nvmlDeviceGetNumGpuCores, u32, 16896)
ANSWER(nvmlDeviceGetMemoryBusWidth, u32, 5120)

// ---- MIG: STANDIN_MIG=3 for a GPU in three instances, 0 for one that could have them, nothing for one that cannot

static int instances(void) { return (int)setting("STANDIN_MIG", -1); }
int nvmlDeviceGetMigMode(void *h, u32 *now, u32 *pending) {
    ALIVE(h);
    if (instances() < 0) return NOT_SUPPORTED;
    *now = *pending = instances() > 0;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(void *h, u32 *out) {
    ALIVE(h);
    *out = instances() < 0 ? 0 : 7;
    return OK;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *h, u32 which, void **out) {
    ALIVE(h);
    if (instances() < 0) return NOT_SUPPORTED;
    if (which >= (u32)instances()) return NOT_FOUND;
    *out = (void *)((size_t)h + EVERY * (which + 1));
    return OK;
}
ANSWER(nvmlDeviceIsMigDeviceHandle, u32, (size_t)h > EVERY)
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *h, void **out) {
    *out = (void *)(size_t)(of(h) + 1);
    return OK;
}

// ---- memory and who holds it

int nvmlDeviceGetMemoryInfo(void *h, u64 *out) {
    u64 total = (u64)capacity(), used = (u64)used_by_all(of(h));
    ALIVE(h);
    if (setting("STANDIN_INTEGRATED", 0)) return NOT_SUPPORTED;
    if (used > total) used = total;
    out[0] = total, out[1] = total - used, out[2] = used;
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(void *h, char *info) {
    u64 *out = (u64 *)(info + 8), total = (u64)capacity(), used = (u64)used_by_all(of(h));
    ALIVE(h);
    if (setting("STANDIN_INTEGRATED", 0)) return NOT_SUPPORTED;
    if (used > total) used = total;
    out[0] = total, out[1] = 0, out[2] = total - used, out[3] = used;
    return OK;
}
int nvmlDeviceGetBAR1MemoryInfo(void *h, u64 *out) {
    ALIVE(h);
    out[0] = out[1] = 128ULL << 30, out[2] = 0;
    return OK;
}
typedef struct { u32 pid; u64 bytes; u32 instance, compute; } process;
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, u32 *count, process *out) {
    u32 room = *count, found = 0;
    ALIVE(h);
    for (int i = 0; i < HOLDERS; i++) {
        holder one = holders()[i];
        if (!one.pid || one.gpu != of(h) || !living(one.pid)) continue;
        if (found < room && out) out[found] = (process){(u32)one.pid, (u64)one.bytes, 0xffffffff, 0xffffffff};
        found++;
    }
    *count = found;
    return found > room ? NO_ROOM : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *h, u32 *count, process *out) {
    return nvmlDeviceGetComputeRunningProcesses_v3(h, count, out);
}
int nvmlDeviceGetComputeRunningProcesses(void *h, u32 *count, u64 *out) {  // at first these were pairs
    process all[HOLDERS];
    u32 room = *count;
    *count = HOLDERS;
    int status = nvmlDeviceGetComputeRunningProcesses_v3(h, count, all);
    if (status) return status;
    if (*count > room) return NO_ROOM;
    for (u32 i = 0; i < *count; i++) out[2 * i] = all[i].pid, out[2 * i + 1] = all[i].bytes;
    return OK;
}
// what each did in the last two seconds
typedef struct { u32 pid; u64 time; u32 sm, memory, encoder, decoder; } work;
int nvmlDeviceGetProcessUtilization(void *h, work *out, u32 *count, u64 since) {
    u32 room = *count, found = 0;
    long now = nanoseconds();
    ALIVE(h);
    for (int i = 0; i < HOLDERS; i++) {
        holder one = holders()[i];
        if (!one.pid || one.gpu != of(h) || !living(one.pid) || one.busy_until < now - 2000000000L) continue;
        if (found < room && out) out[found] = (work){(u32)one.pid, since + 1, 97, 40, 0, 0};
        found++;
    }
    *count = found;
    return !found ? NOT_FOUND : found > room ? NO_ROOM : OK;
}

// ---- how it is

int nvmlDeviceGetUtilizationRates(void *h, u32 *out) { ALIVE(h); out[0] = out[1] = busy(of(h)) ? 97 : 0; return OK; }
enum { MEMORY_CLOCK = 2 };
int nvmlDeviceGetClockInfo(void *h, int which, u32 *out) {
    ALIVE(h);
    *out = which == MEMORY_CLOCK ? 2619 : busy(of(h)) ? (u32)setting("STANDIN_SM_MHZ", 1980) : 345;
    return OK;
}
int nvmlDeviceGetMaxClockInfo(void *h, int which, u32 *out) {
    ALIVE(h);
    *out = which == MEMORY_CLOCK ? 2619 : 1980;
    return OK;
}
int nvmlDeviceGetTemperature(void *h, int which, u32 *out) { ALIVE(h); *out = busy(of(h)) ? 58 : 31; return OK; }
int nvmlDeviceGetTemperatureThreshold(void *h, int which, u32 *out) {
    ALIVE(h);
    *out = which == 1 ? 90 : 95;
    return OK;
}
int nvmlDeviceGetPcieThroughput(void *h, int which, u32 *out) { ALIVE(h); *out = 0; return OK; }
int nvmlDeviceGetEccMode(void *h, u32 *now, u32 *pending) { ALIVE(h); *now = *pending = 1; return OK; }
int nvmlDeviceGetTotalEccErrors(void *h, int uncorrected, int aggregate, u64 *out) {
    ALIVE(h);
    *out = uncorrected ? (u64)table()->gpus[of(h)].ecc_errors : 0;
    return OK;
}
int nvmlDeviceGetRemappedRows(void *h, u32 *corrected, u32 *uncorrected, u32 *pending, u32 *failed) {
    ALIVE(h);
    *corrected = *uncorrected = *pending = *failed = 0;
    return OK;
}
int nvmlDeviceGetP2PStatus(void *a, void *b, int which, int *out) { *out = !setting("STANDIN_PEERS", 1); return OK; }
ANSWER(nvmlDeviceGetPerformanceState, u32, 0)
ANSWER(nvmlDeviceGetPowerUsage, u32, busy(of(h)) ? 420000 : 70000)
ANSWER(nvmlDeviceGetEnforcedPowerLimit, u32, 700000)
ANSWER(nvmlDeviceGetPowerManagementDefaultLimit, u32, 700000)
ANSWER(nvmlDeviceGetPersistenceMode, u32, 1)
ANSWER(nvmlDeviceGetComputeMode, u32, setting("STANDIN_EXCLUSIVE", 0) ? 3 : 0)
ANSWER(nvmlDeviceGetDisplayActive, u32, (u32)setting("STANDIN_DISPLAY", 0))
ANSWER(nvmlDeviceGetCurrPcieLinkGeneration, u32, 5)
ANSWER(nvmlDeviceGetMaxPcieLinkGeneration, u32, 5)
ANSWER(nvmlDeviceGetGpuMaxPcieLinkGeneration, u32, 5)
ANSWER(nvmlDeviceGetCurrPcieLinkWidth, u32, 16)
ANSWER(nvmlDeviceGetMaxPcieLinkWidth, u32, 16)
ANSWER(nvmlDeviceGetPcieReplayCounter, u32, 0)
ANSWER(nvmlDeviceGetRetiredPagesPendingStatus, u32, 0)
static u64 reasons(int gpu) { return !busy(gpu) ? 1 : setting("STANDIN_HOT", 0) ? 0x20 : 0; }
ANSWER(nvmlDeviceGetCurrentClocksEventReasons, u64, reasons(of(h)))
ANSWER(nvmlDeviceGetCurrentClocksThrottleReasons, u64, reasons(of(h)))
ABSENT(nvmlDeviceGetNvLinkState)
ABSENT(nvmlDeviceGetNvLinkRemoteDeviceType)
ABSENT(nvmlDeviceGetNvLinkRemotePciInfo_v2)
ABSENT(nvmlDeviceGetVirtualizationMode)
ABSENT(nvmlDeviceGetGpuFabricInfoV)
