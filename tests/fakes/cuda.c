/* A libcuda.so.1 that knows cuInit, its version, and the devices of a scenario. */
#include "scenario.h"

static int number(const char *name, int gpu, int missing, int *out) {
    const char *value = "0";
    int answer = obey(name, gpu, missing, &value);
    if (!answer) *out = (int)strtol(value, NULL, 0);
    return answer;
}

int cuInit(unsigned flags) { (void)flags; return obey("cuInit", -2, 0, NULL); }
int cuDriverGetVersion(int *out) { return number("cuDriverGetVersion", -2, 999, out); }
int cuDeviceGetCount(int *out) { return number("cuDeviceGetCount", -2, 3, out); }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return obey("cuDeviceGet", ordinal, 0, NULL); }

static int text(const char *name, int gpu, char *out, int size) {
    const char *value = "";
    int answer = obey(name, gpu, 999, &value);
    if (!answer) snprintf(out, (size_t)size, "%s", value);
    return answer;
}
int cuDeviceGetName(char *out, int size, int device) { return text("cuDeviceGetName", device, out, size); }
int cuDeviceGetPCIBusId(char *out, int size, int device) { return text("cuDeviceGetPCIBusId", device, out, size); }
int cuDeviceGetAttribute(int *out, int attribute, int device) {
    char name[48];
    snprintf(name, sizeof name, "attribute.%d", attribute);
    return number(name, device, 1, out);
}
