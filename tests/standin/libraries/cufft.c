// cuFFT: plans need no memory and compute nothing.
#include "standin.h"
int cufftCreate(int *plan) { *plan = 1; return 0; }
int cufftXtMakePlanMany(int plan, int rank, long *n, long *in_embed, long in_stride, long in_step, int in_type,
                        long *out_embed, long out_stride, long out_step, int out_type, long batch, size_t *size,
                        int type) {
    *size = 0;
    return 0;
}
