// CUDA's streams, events and time: a stream is the moment at which its last work ends; work takes its modelled time.
//
// STANDIN_CLOCK=host (the default): the GPU's time is the host's, so that waiting takes as long as the modelled work.
// STANDIN_CLOCK=stands: as host, but it stands still while the host computes or copies in the GPU's place.
// STANDIN_CLOCK=virtual: it moves only by modelled work. Nothing waits: to synchronise is to arrive at the moment when
// the work ends. What is queued follows without a gap, however slow the host is.
#include "standin.h"
#include <cuda_runtime_api.h>
#include <pthread.h>
#include "core.h"

#define API cudaError_t CUDARTAPI
#define FAIL(error) return (cudaError_t)standin_fail(error)
#define NEED_DEVICE(device) do { int e = standin_usable(device); if (e) FAIL(e); } while (0)
#define WELL do { if (standin_fault_so_far()) FAIL(standin_fault_so_far()); } while (0)
// `ticket`: the last piece of work that is under way elsewhere and that the stream or event comes after; 0 for none
struct CUstream_st { int device, priority; unsigned flags; long done, ticket; };
struct CUevent_st { int device, recorded; unsigned flags; long at, ticket; };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUstream_st plain[MAX_GPUS];
static long last[MAX_GPUS];  // when each GPU's last work ends
static struct CUstream_st *real(cudaStream_t s) {
    if ((size_t)s > 2) return s;  // 0, 1 and 2 name the default stream
    struct CUstream_st *own = &plain[standin_device()];
    own->device = standin_device();
    return own;
}
static long later(long a, long b) { return a > b ? a : b; }

// ---- the clock

static _Atomic long aside;    // host time spent in the GPU's place
static _Atomic long reached;  // the virtual moment that the host has waited for
static int is_virtual(void) { return !strcmp(wording("STANDIN_CLOCK", "host"), "virtual"); }
static long gpu_clock(void) { return is_virtual() ? reached : nanoseconds() - aside; }
void standin_aside(long ns) {
    if (strcmp(wording("STANDIN_CLOCK", "host"), "host")) aside += ns;
}
// nanoseconds by which the host's clock must be moved to show the GPU's time where waiting takes none
long standin_clock_offset(void) { return is_virtual() ? reached - aside : 0; }
static void until(long moment) {
    if (is_virtual()) {
        long now = reached;
        while (now < moment && !atomic_compare_exchange_weak(&reached, &now, moment)) {}
        return;
    }
    long now = nanoseconds();
    moment += aside;
    struct timespec t = {moment / 1000000000L, moment % 1000000000L};
    if (moment - now > 60000) while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
    else while (nanoseconds() < moment) {}
}
// who asks again and again must come to an end: with a virtual clock each asking takes twice as long as the one before
static int is_past(long moment) {
    static _Atomic int asked;
    if (moment <= gpu_clock()) {
        asked = 0;
        return 1;
    }
    if (is_virtual()) reached += 1000L << (asked < 30 ? asked++ : 30);
    return 0;
}

// ---- work that is under way elsewhere: a collective, which ends when the other ranks have come

#define KEPT 4096
static _Atomic long tickets, finished;  // one at a time
static long ends[KEPT];                 // when each ended, in the GPU's time
static __thread long mine;              // the ticket that this thread works on
void standin_settle(void) {
    while (finished < tickets && !mine) usleep(50);
}
long standin_begin_pending(void *stream) {
    standin_settle();
    return real(stream)->ticket = ++tickets;
}
void standin_work_on(long ticket) { mine = ticket; }
void standin_end_pending(void *stream, long ticket) {
    ends[ticket % KEPT] = real(stream)->done;
    mine = 0;
    finished = ticket;
}
static int is_open(long *ticket, long *moment) {
    if (!*ticket) return 0;
    if (*ticket > finished) return 1;
    *moment = later(*moment, ends[*ticket % KEPT]);
    *ticket = 0;
    return 0;
}

// ---- work

// an operator whose work is known as a whole takes what its kernels and products take, or what its bytes take
static __thread struct { int open; double charged; void *stream; } operator_;
int standin_operator_is_open(void) { return operator_.open; }
void standin_occupy(void *stream, double ns) {
    standin_settle();
    struct CUstream_st *s = real(stream);
    if (!mine) is_open(&s->ticket, &s->done);
    operator_.charged += ns;
    if (standin_physical(s->device) == setting("STANDIN_SLOW_GPU", -1)) ns *= rate("STANDIN_SLOW_TIMES", 1.25);
    operator_.stream = stream;
    pthread_mutex_lock(&lock);
    s->done = later(s->done, gpu_clock()) + (long)ns;
    last[s->device] = later(last[s->device], s->done);
    holder *row = standin_context(s->device);
    // who watches from outside sees the host's clock
    if (row) row->busy_until = is_virtual() ? nanoseconds() + 10000000 : last[s->device] + aside;
    pthread_mutex_unlock(&lock);
}
void standin_operator(int begin, double bytes, double ns) {
    if (begin) {
        if (!operator_.open++) operator_.charged = 0, operator_.stream = NULL;
        return;
    }
    if (--operator_.open || !operator_.charged) return;
    double by_bytes = bytes / rate("STANDIN_GBPS", 1500), whole = by_bytes > ns ? by_bytes : ns;
    if (whole > operator_.charged) standin_occupy(operator_.stream, whole - operator_.charged);
}
long standin_done(void *stream) { return later(real(stream)->done, gpu_clock()); }
void standin_not_before(void *stream, long moment) { real(stream)->done = later(real(stream)->done, moment); }
void standin_await(void *stream) {
    standin_settle();
    struct CUstream_st *s = real(stream);
    is_open(&s->ticket, &s->done);
    until(s->done);
}

// ---- streams

API cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
    NEED_DEVICE(standin_device());
    standin_context(standin_device());
    *out = calloc(1, sizeof **out);
    **out = (struct CUstream_st){.device = standin_device(), .priority = priority, .flags = flags};
    return 0;
}
API cudaStreamCreate(cudaStream_t *out) { return cudaStreamCreateWithPriority(out, 0, 0); }
API cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) { return cudaStreamCreateWithPriority(out, flags, 0); }
API cudaStreamDestroy(cudaStream_t s) {
    if ((size_t)s > 2) free(s);
    return 0;
}
API cudaStreamQuery(cudaStream_t s) {
    struct CUstream_st *stream = real(s);
    WELL;
    if (is_open(&stream->ticket, &stream->done) || !is_past(stream->done)) FAIL(cudaErrorNotReady);
    return 0;
}
API cudaStreamSynchronize(cudaStream_t s) {
    WELL;
    standin_await(s);
    standin_trim();
    WELL;
    return 0;
}
API cudaDeviceSynchronize(void) {
    NEED_DEVICE(standin_device());
    standin_settle();
    until(last[standin_device()]);
    standin_trim();
    WELL;
    return 0;
}
API cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
    struct CUstream_st *stream = real(s);
    WELL;
    if (!e->recorded) return 0;
    if (is_open(&e->ticket, &e->at)) stream->ticket = later(stream->ticket, e->ticket);
    stream->done = later(stream->done, e->at);
    return 0;
}
API cudaStreamGetPriority(cudaStream_t s, int *out) { *out = real(s)->priority; return 0; }
API cudaStreamGetFlags(cudaStream_t s, unsigned *out) { *out = real(s)->flags; return 0; }
API cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *least = 0, *greatest = -5; return 0; }
API cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *out) {
    *out = cudaStreamCaptureStatusNone;
    return 0;
}
API cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) { return 0; }
API cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t call, void *with) {
    standin_settle();
    call(with);
    return 0;
}
API cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t call, void *with, unsigned flags) {
    standin_settle();
    call(s, 0, with);
    return 0;
}

// ---- events

API cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    NEED_DEVICE(standin_device());
    standin_context(standin_device());
    *out = calloc(1, sizeof **out);
    **out = (struct CUevent_st){.device = standin_device(), .flags = flags};
    return 0;
}
API cudaEventCreate(cudaEvent_t *out) { return cudaEventCreateWithFlags(out, 0); }
API cudaEventDestroy(cudaEvent_t e) { free(e); return 0; }
API cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    struct CUstream_st *stream = real(s);
    WELL;
    if (stream->device != e->device) FAIL(cudaErrorInvalidResourceHandle);
    is_open(&stream->ticket, &stream->done);
    e->recorded = 1;
    e->ticket = stream->ticket;
    e->at = later(stream->done, gpu_clock());
    return 0;
}
API cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags) { return cudaEventRecord(e, s); }
API cudaEventQuery(cudaEvent_t e) {
    WELL;
    if (e->recorded && (is_open(&e->ticket, &e->at) || !is_past(e->at))) FAIL(cudaErrorNotReady);
    return 0;
}
API cudaEventSynchronize(cudaEvent_t e) {
    WELL;
    while (is_open(&e->ticket, &e->at)) usleep(50);
    if (e->recorded) until(e->at);
    standin_trim();
    WELL;
    return 0;
}
API cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
    WELL;
    int untimed = (a->flags | b->flags) & cudaEventDisableTiming;
    if (untimed || !a->recorded || !b->recorded) FAIL(cudaErrorInvalidResourceHandle);
    if (is_open(&a->ticket, &a->at) || is_open(&b->ticket, &b->at)) FAIL(cudaErrorNotReady);
    if (!is_past(a->at) || !is_past(b->at)) FAIL(cudaErrorNotReady);
    *ms = (float)((double)(b->at - a->at) / 1e6);
    return 0;
}
