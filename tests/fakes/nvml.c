/* A libnvidia-ml.so.1 that answers what a scenario says, function by function. Handles are GPU index + 1. */
#include "scenario.h"

#define NOT_SUPPORTED 3
#define INSUFFICIENT_SIZE 7
typedef unsigned long long u64;

static int gpu_of(void *handle) { return (int)(size_t)handle - 1; }

static int text(const char *name, void *handle, char *out, unsigned size) {
    const char *value = "";
    int answer = obey(name, handle ? gpu_of(handle) : -2, NOT_SUPPORTED, &value);
    if (!answer) snprintf(out, size, "%s", value);
    return answer;
}

static int number(const char *name, void *handle, unsigned *out) {
    const char *value = "0";
    int answer = obey(name, handle ? gpu_of(handle) : -2, NOT_SUPPORTED, &value);
    if (!answer) *out = (unsigned)strtoul(value, NULL, 0);
    return answer;
}

static int numbers(const char *name, void *handle, u64 *out, int count) {
    const char *value = "";
    int answer = obey(name, gpu_of(handle), NOT_SUPPORTED, &value);
    char *end = (char *)value;
    for (int i = 0; !answer && i < count; i++) out[i] = strtoull(end, &end, 0);
    return answer;
}

static int numbered(const char *name, int which, void *handle, unsigned *out) {
    char full[96];
    snprintf(full, sizeof full, "%s.%d", name, which);
    return number(full, handle, out);
}

#define TEXT(name) int name(void *handle, char *out, unsigned size) { return text(#name, handle, out, size); }
#define NUMBER(name) int name(void *handle, unsigned *out) { return number(#name, handle, out); }
#define NUMBERED(name) int name(void *handle, int which, unsigned *out) { return numbered(#name, which, handle, out); }
#define PAIR(name) int name(void *handle, unsigned *a, unsigned *b) { \
    u64 v[2]; int answer = numbers(#name, handle, v, 2); \
    if (!answer) { *a = (unsigned)v[0]; *b = (unsigned)v[1]; } return answer; }

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (obey("crash", -2, 0, NULL)) abort();
    return obey("nvmlInit", -2, 0, NULL);
}
int nvmlInit_v2(void) { return obey("nvmlInit", -2, 0, NULL); }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { return text("nvmlSystemGetDriverVersion", NULL, out, size); }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { return number("nvmlSystemGetCudaDriverVersion", NULL, (unsigned *)out); }
int nvmlDeviceGetCount_v2(unsigned *out) { return number("nvmlDeviceGetCount", NULL, out); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    int answer = obey("nvmlDeviceGetHandleByIndex", (int)index, 0, NULL);
    *handle = (void *)(size_t)(index + 1);
    return answer;
}

TEXT(nvmlDeviceGetName)
TEXT(nvmlDeviceGetUUID)
TEXT(nvmlDeviceGetVbiosVersion)
int nvmlDeviceGetGspFirmwareVersion(void *handle, char *out) { return text("nvmlDeviceGetGspFirmwareVersion", handle, out, 64); }
NUMBER(nvmlDeviceGetBrand)
NUMBER(nvmlDeviceGetNumGpuCores)
NUMBER(nvmlDeviceGetMemoryBusWidth)
NUMBER(nvmlDeviceGetPerformanceState)
int nvmlDeviceGetMarginTemperature(void *handle, unsigned *info) { return number("nvmlDeviceGetMarginTemperature", handle, info + 1); }
NUMBER(nvmlDeviceGetPowerUsage)
NUMBER(nvmlDeviceGetEnforcedPowerLimit)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit)
PAIR(nvmlDeviceGetPowerManagementLimitConstraints)
NUMBER(nvmlDeviceGetPersistenceMode)
NUMBER(nvmlDeviceGetComputeMode)
NUMBER(nvmlDeviceGetDisplayActive)
NUMBER(nvmlDeviceGetNumaNodeId)
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth)
// "7 3": 7 at first, 3 more at each further question
int nvmlDeviceGetPcieReplayCounter(void *handle, unsigned *out) {
    static unsigned asked[64];
    u64 v[2];
    int answer = numbers("nvmlDeviceGetPcieReplayCounter", handle, v, 2);
    if (!answer) *out = (unsigned)(v[0] + v[1] * asked[(size_t)handle & 63]++);
    return answer;
}
NUMBER(nvmlDeviceGetMaxMigDeviceCount)
NUMBERED(nvmlDeviceGetClockInfo)
NUMBERED(nvmlDeviceGetMaxClockInfo)
NUMBERED(nvmlDeviceGetTemperature)
NUMBERED(nvmlDeviceGetTemperatureThreshold)
PAIR(nvmlDeviceGetCudaComputeCapability)
PAIR(nvmlDeviceGetEccMode)
PAIR(nvmlDeviceGetMigMode)

int nvmlDeviceGetVirtualizationMode(void *handle, u64 *out) { return numbers("nvmlDeviceGetVirtualizationMode", handle, out, 1); }
int nvmlDeviceGetCurrentClocksEventReasons(void *handle, u64 *out) {
    return numbers("nvmlDeviceGetCurrentClocksEventReasons", handle, out, 1);
}
int nvmlDeviceGetUtilizationRates(void *handle, unsigned *out) {
    out[1] = 0;
    return number("nvmlDeviceGetUtilizationRates", handle, out);
}

int nvmlDeviceGetPciInfo_v3(void *handle, char *info) {
    memset(info, 0, 68);
    return text("nvmlDeviceGetPciInfo", handle, info + 36, 32);
}

/* value: total used */
static void fill_memory(u64 *total_reserved_free_used, const u64 *given) {
    u64 *out = total_reserved_free_used;
    out[0] = given[0]; out[1] = 0; out[2] = given[0] - given[1]; out[3] = given[1];
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, char *info) {
    u64 given[2];
    int answer = numbers("nvmlDeviceGetMemoryInfo", handle, given, 2);
    if (!answer) fill_memory((u64 *)(info + 8), given);
    return answer;
}
int nvmlDeviceGetMemoryInfo(void *handle, u64 *info) {
    u64 given[2];
    int answer = numbers("nvmlDeviceGetMemoryInfo", handle, given, 2);
    if (!answer) { info[0] = given[0]; info[1] = given[0] - given[1]; info[2] = given[1]; }
    return answer;
}
int nvmlDeviceGetBAR1MemoryInfo(void *handle, u64 *info) { return numbers("nvmlDeviceGetBAR1MemoryInfo", handle, info, 3); }

int nvmlDeviceGetTotalEccErrors(void *handle, int kind, int counter, u64 *out) {
    char full[96];
    snprintf(full, sizeof full, "nvmlDeviceGetTotalEccErrors.%d.%d", kind, counter);
    return numbers(full, handle, out, 1);
}

/* value: corrected uncorrectable pending failed */
int nvmlDeviceGetRemappedRows(void *handle, unsigned *a, unsigned *b, unsigned *c, unsigned *d) {
    u64 v[4];
    int answer = numbers("nvmlDeviceGetRemappedRows", handle, v, 4);
    if (!answer) { *a = (unsigned)v[0]; *b = (unsigned)v[1]; *c = (unsigned)v[2]; *d = (unsigned)v[3]; }
    return answer;
}
int nvmlDeviceGetRepairStatus(void *handle, unsigned *status) { return number("nvmlDeviceGetRepairStatus", handle, status + 1); }
int nvmlDeviceGetSramEccErrorStatus(void *handle, char *status) {
    return number("nvmlDeviceGetSramEccErrorStatus", handle, (unsigned *)(status + 96));
}

// "7 3": 7 at first, 3 more at each further question
struct field { unsigned id, scope; long long time, latency; int type, answer; u64 value; };
int nvmlDeviceGetFieldValues(void *handle, int count, struct field *fields) {
    static unsigned asked[512][64];
    for (int i = 0; i < count; i++) {
        char name[32];
        u64 v[2] = {0, 0};
        snprintf(name, sizeof name, "field.%u", fields[i].id);
        fields[i].answer = numbers(name, handle, v, 2);
        fields[i].type = 3;
        fields[i].value = v[0] + v[1] * asked[fields[i].id & 511][(size_t)handle & 63]++;
    }
    return 0;
}

/* value: active total */
int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *active) {
    u64 v[2];
    int answer = numbers("nvmlDeviceGetNvLinkState", handle, v, 2);
    if (answer) return answer;
    if (link >= v[1]) return 2;
    *active = link < v[0];
    return 0;
}
NUMBERED(nvmlDeviceGetNvLinkRemoteDeviceType)
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, char *info) {
    char full[96];
    snprintf(full, sizeof full, "nvmlDeviceGetNvLinkRemotePciInfo.%u", link);
    memset(info, 0, 68);
    return text(full, handle, info + 36, 32);
}
/* value: state status health, the last two 0 unless given */
static int fabric(void *handle, unsigned *status, unsigned char *state, unsigned *health) {
    u64 v[3] = {0, 0, 0};
    int answer = numbers("nvmlDeviceGetGpuFabricInfo", handle, v, 3);
    if (answer) return answer;
    *state = (unsigned char)v[0];
    *status = (unsigned)v[1];
    if (health) *health = (unsigned)v[2];
    return 0;
}
int nvmlDeviceGetGpuFabricInfo(void *handle, char *info) {
    return fabric(handle, (unsigned *)(info + 16), (unsigned char *)(info + 24), NULL);
}
int nvmlDeviceGetGpuFabricInfoV(void *handle, char *info) {
    int refused = obey("nvmlDeviceGetGpuFabricInfoV", gpu_of(handle), 0, NULL);
    return refused ? refused : fabric(handle, (unsigned *)(info + 20), (unsigned char *)(info + 28), (unsigned *)(info + 32));
}

/* value: pid:bytes pid:bytes:instance ... */
struct process { unsigned pid; u64 bytes; unsigned gpu_instance, compute_instance; };
static int list(const char *name, void *handle, unsigned *count, struct process *out) {
    const char *value = "";
    int answer = obey(name, gpu_of(handle), 0, &value);
    unsigned found = 0;
    for (const char *at = value; !answer && *at;) {
        char *end;
        unsigned pid = (unsigned)strtoul(at, &end, 10);
        if (*end != ':') break;
        u64 bytes = strtoull(end + 1, &end, 10);
        unsigned instance = *end == ':' ? (unsigned)strtoul(end + 1, &end, 10) : ~0u;
        if (out && found < *count) out[found] = (struct process){pid, bytes, instance, ~0u};
        found++;
        at = *end ? end + 1 : end;
    }
    if (answer) return answer;
    int fits = out && found <= *count;
    *count = found;
    return found == 0 || fits ? 0 : INSUFFICIENT_SIZE;
}

#define PROCESSES(name) int name##_v3(void *handle, unsigned *count, struct process *out) { return list(#name, handle, count, out); }
PROCESSES(nvmlDeviceGetComputeRunningProcesses)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses)
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses)

/* value: pid:percent pid:percent ... */
struct work { unsigned pid; u64 time; unsigned sm, memory, encoder, decoder; };
int nvmlDeviceGetProcessUtilization(void *handle, struct work *out, unsigned *count, u64 since) {
    const char *value = "";
    (void)since;
    int answer = obey("nvmlDeviceGetProcessUtilization", gpu_of(handle), 3, &value);
    unsigned found = 0;
    for (const char *at = value; !answer && *at;) {
        char *end;
        unsigned pid = (unsigned)strtoul(at, &end, 10);
        if (*end != ':') break;
        unsigned sm = (unsigned)strtoul(end + 1, &end, 10);
        if (out && found < *count) out[found] = (struct work){pid, found + 1, sm, 0, 0, 0};
        found++;
        at = *end ? end + 1 : end;
    }
    if (answer) return answer;
    int fits = out && found <= *count;
    *count = found;
    return found == 0 ? 6 : fits ? 0 : INSUFFICIENT_SIZE;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **out) {
    unsigned count = 0;
    number("mig_instances", handle, &count);
    *out = handle;
    return index < count ? 0 : 6;
}

/* value: 1 licensed, 0 not */
int nvmlDeviceGetGridLicensableFeatures_v4(void *handle, unsigned *out) {
    unsigned state = 0;
    int answer = number("nvmlDeviceGetGridLicensableFeatures", handle, &state);
    if (!answer) { out[0] = 1; out[1] = 1; out[3] = state; }
    return answer;
}

/* Performance counters: gpm.ID is a metric between two samples, gpm.ID.mig7 that of an instance of a GPU in MIG mode. */
struct sample { void *handle; int instance; };
struct metric { unsigned id; int answer; double value; const char *names[3]; };
struct metrics { unsigned version, count; struct sample *before, *now; struct metric metrics[]; };
int nvmlGpmQueryDeviceSupport(void *handle, unsigned *support) {
    return number("nvmlGpmQueryDeviceSupport", handle, support + 1);
}
int nvmlGpmSampleAlloc(struct sample **out) { *out = calloc(1, sizeof **out); return 0; }
int nvmlGpmSampleFree(struct sample *sample) { free(sample); return 0; }
int nvmlGpmSampleGet(void *handle, struct sample *sample) {
    *sample = (struct sample){handle, -1};
    return obey("nvmlGpmSampleGet", gpu_of(handle), 0, NULL);
}
int nvmlGpmMigSampleGet(void *handle, unsigned instance, struct sample *sample) {
    *sample = (struct sample){handle, (int)instance};
    return obey("nvmlGpmMigSampleGet", gpu_of(handle), 0, NULL);
}
int nvmlGpmMetricsGet(struct metrics *asked) {
    int refused = obey("nvmlGpmMetricsGet", gpu_of(asked->now->handle), 0, NULL);
    for (unsigned i = 0; !refused && i < asked->count; i++) {
        char name[32];
        const char *value = "0";
        struct metric *one = &asked->metrics[i];
        if (asked->now->instance < 0) snprintf(name, sizeof name, "gpm.%u", one->id);
        else snprintf(name, sizeof name, "gpm.%u.mig%d", one->id, asked->now->instance);
        // the two of one interval are of one GPU, and not the same sample
        one->answer = asked->before == asked->now || asked->before->handle != asked->now->handle
            ? 2 : obey(name, gpu_of(asked->now->handle), NOT_SUPPORTED, &value);
        one->value = strtod(value, NULL);
    }
    return refused;
}
