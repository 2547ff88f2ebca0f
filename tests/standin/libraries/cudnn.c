// cuDNN 9: its graphs can be built, offer one plan without workspace, and compute nothing.
#include "standin.h"
#include "core.h"

typedef struct { void *stream; } dnn;
size_t cudnnGetVersion(void) { return (size_t)setting("STANDIN_CUDNN", 92400); }
size_t cudnnGetCudartVersion(void) { return (size_t)setting("STANDIN_DRIVER_CUDA", 12080); }
int cudnnGetProperty(int which, int *out) {  // 0 major, 1 minor, 2 patch level
    size_t v = cudnnGetVersion();
    *out = (int)(which == 0 ? v / 10000 : which == 1 ? v / 100 % 100 : v % 100);
    return 0;
}
const char *cudnnGetErrorString(int status) { return status ? "CUDNN_STATUS_INTERNAL_ERROR" : "CUDNN_STATUS_SUCCESS"; }
void cudnnGetLastErrorString(char *out, size_t size) { if (size) *out = 0; }
int cudnnCreate(dnn **out) { *out = calloc(1, sizeof **out); return 0; }
int cudnnDestroy(dnn *h) { free(h); return 0; }
int cudnnSetStream(dnn *h, void *stream) { h->stream = stream; return 0; }
int cudnnGetStream(dnn *h, void **out) { *out = h->stream; return 0; }

// a backend descriptor: types of attributes are 3 int64, 15 descriptor
int cudnnBackendCreateDescriptor(int type, void **out) {
    int *made = calloc(1, 64);
    *made = type;
    *out = made;
    return 0;
}
int cudnnBackendDestroyDescriptor(void *d) { free(d); return 0; }
int cudnnBackendGetAttribute(void *d, int which, int type, long asked, long *count, void *out) {
    long given = type == 15 || type == 3 ? 1 : 0;
    if (count) *count = given;
    if (given && asked > 0 && out && type == 3) *(long *)out = 0;
    return 0;
}
int cudnnBackendExecute(dnn *h, void *plan, void *pack) { standin_occupy(h->stream, 20000); return 0; }

// how much memory something needs, which is the last of so many parameters
#define NONE_NEEDED_2(name) int name(void *a, size_t *out) { *out = 0; return 0; }
#define NONE_NEEDED_3(name) int name(void *a, void *b, size_t *out) { *out = 0; return 0; }
#define NONE_NEEDED_6(name) int name(void *a, int b, int c, void *d, void *e, size_t *out) { *out = 0; return 0; }
#define NONE_NEEDED_7(name) \
    int name(void *a, void *b, void *c, void *d, void *e, int f, size_t *out) { *out = 0; return 0; }
NONE_NEEDED_2(cudnnDropoutGetStatesSize)
NONE_NEEDED_3(cudnnGetRNNWeightSpaceSize)
int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *h, int mode, int ops, void *x, void *z, void *y,
                                                             void *bn, void *activation, size_t *out) {
    *out = 0;
    return 0;
}
int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *h, int mode, int ops, void *x, void *y, void *dy, void *dz,
                                                      void *dx, void *bn, void *activation, size_t *out) {
    *out = 0;
    return 0;
}
NONE_NEEDED_6(cudnnGetBatchNormalizationTrainingExReserveSpaceSize)
NONE_NEEDED_7(cudnnGetConvolutionForwardWorkspaceSize)
NONE_NEEDED_7(cudnnGetConvolutionBackwardDataWorkspaceSize)
NONE_NEEDED_7(cudnnGetConvolutionBackwardFilterWorkspaceSize)
