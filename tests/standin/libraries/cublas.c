// cuBLAS: each product takes the time of its operations on its stream, and computes nothing.
#include "standin.h"
#include "core.h"

typedef struct { void *stream, *workspace; int math, pointers; } blas;
enum { FLOAT, DOUBLE, HALF, INT8, BFLOAT16 = 14 };  // cudaDataType
enum { TF32 = 3 };                                  // cublasMath_t

// 10^12 operations a second, by type, as shares of STANDIN_TFLOPS
static double tera(int type, int math) {
    double share = type == HALF || type == BFLOAT16 ? 1 : type == INT8 ? 2 : type == FLOAT && math == TF32 ? 0.5 : 0.06;
    return share * rate("STANDIN_TFLOPS", 600);
}
static int product(void *handle, double m, double n, double k, double batch, int type) {
    blas *h = handle;
    standin_occupy(h->stream, 4000 + 2 * m * n * k * batch / tera(type, h->math) / 1e3);
    return 0;
}
int cublasCreate_v2(void **out) { *out = calloc(1, sizeof(blas)); return 0; }
int cublasDestroy_v2(void *h) { free(h); return 0; }
int cublasSetStream_v2(void *h, void *stream) { ((blas *)h)->stream = stream; return 0; }
int cublasGetStream_v2(void *h, void **out) { *out = ((blas *)h)->stream; return 0; }
int cublasSetWorkspace_v2(void *h, void *at, size_t size) { ((blas *)h)->workspace = at; return 0; }
int cublasSetMathMode(void *h, int mode) { ((blas *)h)->math = mode; return 0; }
int cublasGetMathMode(void *h, int *out) { *out = ((blas *)h)->math; return 0; }
int cublasSetPointerMode_v2(void *h, int mode) { ((blas *)h)->pointers = mode; return 0; }
int cublasGetPointerMode_v2(void *h, int *out) { *out = ((blas *)h)->pointers; return 0; }
int cublasGetVersion_v2(void *h, int *out) { *out = 120804; return 0; }
int cublasGetProperty(int which, int *out) { *out = which == 0 ? 12 : which == 1 ? 8 : 4; return 0; }
const char *cublasGetStatusString(int status) { return status ? "cuBLAS failed" : "success"; }

#define SIZES void *h, int ta, int tb, int m, int n, int k
int cublasSgemm_v2(SIZES) { return product(h, m, n, k, 1, FLOAT); }
int cublasDgemm_v2(SIZES) { return product(h, m, n, k, 1, DOUBLE); }
int cublasGemmEx(SIZES, void *alpha, void *a, int type) { return product(h, m, n, k, 1, type); }
int cublasSgemmEx(SIZES, void *alpha, void *a, int type) { return product(h, m, n, k, 1, type); }
int cublasSgemmStridedBatched(SIZES, void *alpha, void *a, int lda, long step_a, void *b, int ldb, long step_b,
                              void *beta, void *c, int ldc, long step_c, int batch) {
    return product(h, m, n, k, batch, FLOAT);
}
int cublasGemmStridedBatchedEx(SIZES, void *alpha, void *a, int type, int lda, long step_a, void *b, int b_type,
                               int ldb, long step_b, void *beta, void *c, int c_type, int ldc, long step_c, int batch) {
    return product(h, m, n, k, batch, type);
}
