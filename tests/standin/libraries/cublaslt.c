// cuBLASLt: one way to multiply is always found; it takes the time of its operations and computes nothing.
#include "standin.h"
#include "core.h"

typedef struct { int type; long rows, columns, batch; } layout;
typedef struct { int transposed; } operation;
typedef struct { uint64_t algorithm[8]; size_t workspace; int state; float waves; int reserved[4]; } found;
enum { FLOAT = 0, INT8 = 3, FP8 = 28 };          // cudaDataType, of which FP8's come last
enum { BATCH_COUNT = 5, TRANSPOSED_FIRST = 3 };  // attributes of a layout and of a product

int cublasLtMatrixLayoutCreate(layout **out, int type, uint64_t rows, uint64_t columns, long ld) {
    *out = calloc(1, sizeof **out);
    **out = (layout){type, (long)rows, (long)columns, 1};
    return 0;
}
int cublasLtMatrixLayoutDestroy(layout *l) { free(l); return 0; }
int cublasLtMatrixLayoutSetAttribute(layout *l, int which, const void *value, size_t size) {
    if (which == BATCH_COUNT) l->batch = *(const int *)value;
    return 0;
}
int cublasLtMatmulDescCreate(operation **out) { *out = calloc(1, sizeof **out); return 0; }
int cublasLtMatmulDescDestroy(operation *o) { free(o); return 0; }
int cublasLtMatmulDescSetAttribute(operation *o, int which, const void *value, size_t size) {
    if (which == TRANSPOSED_FIRST) o->transposed = *(const int *)value != 0;
    return 0;
}
int cublasLtMatmulPreferenceCreate(void **out) { *out = calloc(1, 8); return 0; }
int cublasLtMatmulPreferenceDestroy(void *p) { free(p); return 0; }
int cublasLtMatmulAlgoGetHeuristic(void *h, void *o, void *a, void *b, void *c, void *d, void *p, int asked, found *out,
                                   int *count) {
    *count = asked > 0;
    if (asked > 0) memset(out, 0, sizeof *out);
    return 0;
}
int cublasLtMatmul(void *h, operation *o, void *alpha, void *a, layout *la, void *b, layout *lb, void *beta, void *c,
                   layout *lc, void *d, layout *ld, void *algorithm, void *workspace, size_t size, void *stream) {
    double share = la->type == FLOAT ? 0.06 : la->type == INT8 || la->type >= FP8 ? 2 : 1;
    double depth = (double)(o->transposed ? la->rows : la->columns);
    double operations = 2.0 * (double)ld->rows * (double)ld->columns * depth * (double)ld->batch;
    standin_occupy(stream, 4000 + operations / (share * rate("STANDIN_TFLOPS", 600)) / 1e3);
    return 0;
}
