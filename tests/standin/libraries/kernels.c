// The few kernels that are run for real, told by their names, and functions that have no one prototype in all releases.
#include "standin.h"
#include "core.h"

// the size of the element type whose letters follow FillFunctorI in the kernel's mangled name; 0 for one not known
static size_t element(const char *at) {
    if (strchr("hab", *at)) return 1;
    if (*at == 's' || !strncmp(at, "N3c104Half", 10) || !strncmp(at, "N3c108BFloat16", 14)) return 2;
    return strchr("if", *at) ? 4 : strchr("dl", *at) ? 8 : 0;
}
// vectorized_elementwise_kernel(int n, FillFunctor f, std::array<char *, 1> data): torch.full, ones, fill_
static void fill(void **args, size_t size) {
    static const char nothing[8];
    int n = *(int *)args[0];
    char *to = *(char **)args[2];
    if (!memcmp(args[1], nothing, size)) standin_zeros(to, (size_t)n * size);
    else for (int i = 0; i < n; i++) memcpy(to + (size_t)i * size, args[1], size);
}
void standin_run(const char *name, void **args, void *stream) {
    const char *functor = strstr(name, "11FillFunctorI");
    size_t size = functor && strstr(name, "vectorized_elementwise_kernel") ? element(functor + 14) : 0;
    if (size) fill(args, size);
    // torch.cuda._sleep(cycles)
    if (strstr(name, "spin_kernel")) standin_occupy(stream, (double)*(long *)args[0] / 1.98);
}

// nothing captures here: the parameters beyond the status, which differ between releases, are left as they are
#define NO_CAPTURE(name) int name(void *stream, int *status) { *status = 0; return 0; }
NO_CAPTURE(cudaStreamGetCaptureInfo)
NO_CAPTURE(cudaStreamGetCaptureInfo_v2)
NO_CAPTURE(cudaStreamGetCaptureInfo_v3)

// what PyTorch looks for by name in the driver and can do without
#define NOT_OFFERED(name) int name(void) { return 801; }
NOT_OFFERED(cuMemExportToShareableHandle)
NOT_OFFERED(cuMemImportFromShareableHandle)
NOT_OFFERED(cuMemsetD32Async)
NOT_OFFERED(cuMulticastAddDevice)
NOT_OFFERED(cuMulticastBindMem)
NOT_OFFERED(cuMulticastCreate)
NOT_OFFERED(cuMulticastUnbind)
NOT_OFFERED(cuStreamWriteValue32)
