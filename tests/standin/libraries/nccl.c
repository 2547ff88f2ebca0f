// NCCL between the processes of one machine, over shared memory: what is sent is what arrives, sums are sums.
//
// A call returns at once, as with a GPU. A thread ends it when the other ranks have come; until then its stream is
// busy, and the process's next work waits, since what it computes with may be on its way. Several ranks in one process
// are not offered.
#include "standin.h"
#include <pthread.h>
#include <sched.h>
#include "core.h"

#define SLOT (4UL << 20)
#define RANKS 16
enum { OK = 0, SYSTEM_ERROR = 2, INVALID_USAGE = 5, IN_PROGRESS = 7 };
enum { SUM, PRODUCT, MAXIMUM, MINIMUM, AVERAGE };
enum { INT8, UINT8, INT32, UINT32, INT64, UINT64, HALF, FLOAT, DOUBLE, BFLOAT16, FP8_E4M3, FP8_E5M2 };
static const size_t WIDTHS[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
typedef struct { char text[128]; } name;
typedef struct { _Atomic long sent, taken; } channel;  // bytes of one rank's messages to another
typedef struct {
    _Atomic int arrived, round;
    _Atomic long moment[RANKS];
    int colour[RANKS], key[RANKS];
    channel channels[RANKS][RANKS];
} board;
typedef struct comm {
    board *shared;
    char *slots, *letters;  // a slot for each rank, and one for each pair
    int rank, ranks, splits;
    _Atomic int aborted, error;
    name id;
} comm;

int ncclGetVersion(int *out) { *out = (int)setting("STANDIN_NCCL", 22703); return OK; }
const char *ncclGetErrorString(int e) { return e ? "unhandled system error" : "no error"; }
const char *ncclGetLastError(comm *c) { return ""; }
int ncclGetUniqueId(name *out) {
    memset(out, 0, sizeof *out);
    snprintf(out->text, sizeof out->text, "standin-nccl-%d-%ld", getpid(), nanoseconds());
    return OK;
}

// ---- meeting the other ranks

// gives up the processor, and sleeps after a while; 0 once the communicator is given up
static int be_patient(comm *c, long tries) {
    if (c->aborted) return 0;
    if (tries < 200) sched_yield();
    else usleep(50);
    return 1;
}
static int meet(comm *c) {
    int round = c->shared->round;
    if (atomic_fetch_add(&c->shared->arrived, 1) + 1 == c->ranks) {
        c->shared->arrived = 0;
        atomic_fetch_add(&c->shared->round, 1);
        return OK;
    }
    for (long tries = 0; c->shared->round == round; tries++)
        if (!be_patient(c, tries)) return SYSTEM_ERROR;
    return OK;
}
static int join_board(comm **out, int ranks, name id, int rank) {
    if (ranks > RANKS) return INVALID_USAGE;
    comm *c = calloc(1, sizeof *c);
    char path[160];
    size_t head = (sizeof(board) + 65535) / 65536 * 65536, size = head + SLOT * (size_t)(ranks + ranks * ranks);
    *c = (comm){.rank = rank, .ranks = ranks, .id = id};
    snprintf(path, sizeof path, "/dev/shm/%s", id.text);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, (off_t)size)) return SYSTEM_ERROR;
    c->shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    c->slots = (char *)c->shared + head;
    c->letters = c->slots + SLOT * (size_t)ranks;
    close(file);
    *out = c;
    int status = meet(c);
    unlink(path);  // its memory goes with the last rank
    standin_charge(standin_device(), setting("STANDIN_NCCL_BYTES", 256L << 20));
    return status;
}
int ncclCommInitRankConfig(comm **out, int ranks, name id, int rank, void *config) {
    standin_settle();
    return join_board(out, ranks, id, rank);
}
int ncclCommInitRank(comm **out, int ranks, name id, int rank) {
    return ncclCommInitRankConfig(out, ranks, id, rank, NULL);
}
int ncclCommInitRankScalable(comm **out, int ranks, int rank, int ids, name *id, void *config) {
    return ncclCommInitRankConfig(out, ranks, *id, rank, config);
}
int ncclCommInitAll(void) { return INVALID_USAGE; }
int ncclCommSplit(comm *c, int colour, int key, comm **out, void *config) {
    standin_settle();
    c->shared->colour[c->rank] = colour;
    c->shared->key[c->rank] = key;
    int status = meet(c), ranks = 0, rank = 0, first = c->ranks;
    for (int other = 0; !status && other < c->ranks; other++) {
        if (c->shared->colour[other] != colour) continue;
        ranks++;
        int theirs = c->shared->key[other];
        rank += theirs < key || (theirs == key && other < c->rank);
        if (first == c->ranks) first = other;
    }
    if (!status) status = meet(c);  // all have read before the next split writes
    *out = NULL;
    if (status || colour < 0) return status;
    name id = {{0}};
    snprintf(id.text, sizeof id.text, "%.90s-%d-%d", c->id.text, ++c->splits, colour);
    return join_board(out, ranks, id, rank);
}
int ncclCommCount(comm *c, int *out) { *out = c->ranks; return OK; }
int ncclCommUserRank(comm *c, int *out) { *out = c->rank; return OK; }
int ncclCommGetAsyncError(comm *c, int *out) { *out = c->error; return OK; }
int ncclCommAbort(comm *c) {
    if (c) c->aborted = 1;  // PyTorch gives a communicator up twice, the second time without one
    return OK;
}
int ncclCommFinalize(comm *c) { standin_settle(); return OK; }
int ncclCommDestroy(comm *c) { return OK; }

// ---- arithmetic

static float wide(uint16_t v) {
    uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
static uint16_t narrow(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
#define OF_TWO(op, a, b) ((op) == PRODUCT ? (a) * (b) : (op) == MAXIMUM ? ((a) > (b) ? (a) : (b)) \
    : (op) == MINIMUM ? ((a) < (b) ? (a) : (b)) : (a) + (b))
#define JOIN(T) { \
    T *x = into; const T *y = from; \
    for (size_t i = 0; i < n; i++) x[i] = OF_TWO(op, x[i], y[i]); \
    break; }
static void join(void *into, const void *from, size_t n, int type, int op) {
    switch (type) {
    case INT8: JOIN(int8_t)
    case UINT8: JOIN(uint8_t)
    case INT32: JOIN(int32_t)
    case UINT32: JOIN(uint32_t)
    case INT64: JOIN(int64_t)
    case UINT64: JOIN(uint64_t)
    case HALF: JOIN(_Float16)
    case FLOAT: JOIN(float)
    case DOUBLE: JOIN(double)
    case BFLOAT16: {
        uint16_t *x = into;
        const uint16_t *y = from;
        for (size_t i = 0; i < n; i++) x[i] = narrow(OF_TWO(op, wide(x[i]), wide(y[i])));
    }
    }
}
static void scale(void *at, size_t n, int type, double by) {
    for (size_t i = 0; i < n; i++) switch (type) {
    case HALF: ((_Float16 *)at)[i] = (_Float16)((double)((_Float16 *)at)[i] * by); break;
    case FLOAT: ((float *)at)[i] = (float)(((float *)at)[i] * by); break;
    case DOUBLE: ((double *)at)[i] *= by; break;
    case BFLOAT16: ((uint16_t *)at)[i] = narrow((float)(wide(((uint16_t *)at)[i]) * by));
    }
}
// operations that a program made: a sum of what was multiplied before
#define MADE 64
static double factors[MADE];
static _Atomic int made;
int ncclRedOpCreatePreMulSum(int *op, const void *factor, int type, int residence, comm *c) {
    int place = made++ % MADE;
    factors[place] = type == HALF ? (double)*(const _Float16 *)factor : type == FLOAT ? *(const float *)factor
                   : type == BFLOAT16 ? wide(*(const uint16_t *)factor) : *(const double *)factor;
    *op = AVERAGE + 1 + place;
    return OK;
}
int ncclRedOpDestroy(int op, comm *c) { return OK; }

// ---- the collectives: every rank lays a piece of its data out, then takes what it needs

typedef enum { REDUCE, BROADCAST, GATHER, SCATTER, SEND, RECEIVE } kind;
typedef struct {
    kind kind;
    const char *in;
    char *out;
    size_t n;
    int type, op, peer;  // peer: the root, or who sends or receives; -1 for all
    comm *comm;
    void *stream;
    size_t moved;  // of a message: bytes so far
} task;

// the pieces of all ranks in [from, from + part) of the whole, joined
static void join_all(comm *c, char *to, size_t part, int type, int op) {
    memcpy(to, c->slots, part * WIDTHS[type]);
    for (int rank = 1; rank < c->ranks; rank++) join(to, c->slots + SLOT * (size_t)rank, part, type, op);
    if (op == AVERAGE) scale(to, part, type, 1.0 / c->ranks);
}
static int reduce(task *t) {
    comm *c = t->comm;
    size_t width = WIDTHS[t->type], step = SLOT / width;
    for (size_t done = 0; done < t->n; done += step) {
        size_t part = t->n - done < step ? t->n - done : step;
        char *slot = c->slots + SLOT * (size_t)c->rank;
        memcpy(slot, t->in + done * width, part * width);
        if (t->op > AVERAGE) scale(slot, part, t->type, factors[t->op - AVERAGE - 1]);
        if (meet(c)) return SYSTEM_ERROR;
        if (t->peer < 0 || t->peer == c->rank) join_all(c, t->out + done * width, part, t->type, t->op);
        if (meet(c)) return SYSTEM_ERROR;
    }
    return OK;
}
static int broadcast(task *t) {
    comm *c = t->comm;
    size_t bytes = t->n * WIDTHS[t->type];
    for (size_t done = 0; done < bytes; done += SLOT) {
        size_t part = bytes - done < SLOT ? bytes - done : SLOT;
        if (c->rank == t->peer) memcpy(c->slots, t->in + done, part);
        if (meet(c)) return SYSTEM_ERROR;
        memmove(t->out + done, c->slots, part);
        if (meet(c)) return SYSTEM_ERROR;
    }
    return OK;
}
static int gather(task *t) {
    comm *c = t->comm;
    size_t bytes = t->n * WIDTHS[t->type];
    for (size_t done = 0; done < bytes; done += SLOT) {
        size_t part = bytes - done < SLOT ? bytes - done : SLOT;
        memcpy(c->slots + SLOT * (size_t)c->rank, t->in + done, part);
        if (meet(c)) return SYSTEM_ERROR;
        for (int rank = 0; rank < c->ranks; rank++)
            memcpy(t->out + (size_t)rank * bytes + done, c->slots + SLOT * (size_t)rank, part);
        if (meet(c)) return SYSTEM_ERROR;
    }
    return OK;
}
static int scatter(task *t) {
    size_t bytes = t->n * WIDTHS[t->type];
    task whole = *t;
    whole.out = malloc(bytes * (size_t)t->comm->ranks + 1);
    whole.n = t->n * (size_t)t->comm->ranks;
    int status = reduce(&whole);
    memcpy(t->out, whole.out + (size_t)t->comm->rank * bytes, bytes);
    free(whole.out);
    return status;
}

// ---- messages, of which all in a group go on at once

// moves what can be moved now; 1 when the message is through
static int advance(task *t) {
    comm *c = t->comm;
    int from = t->kind == SEND ? c->rank : t->peer, to = t->kind == SEND ? t->peer : c->rank;
    channel *way = &c->shared->channels[from][to];
    char *letter = c->letters + SLOT * (size_t)(from * c->ranks + to);
    size_t bytes = t->n * WIDTHS[t->type], part = bytes - t->moved < SLOT ? bytes - t->moved : SLOT;
    if (t->moved == bytes) return 1;
    if (t->kind == SEND && way->sent == way->taken) {
        memcpy(letter, t->in + t->moved, part);
        t->moved += part;
        way->sent += (long)part;
    } else if (t->kind == RECEIVE && way->sent != way->taken) {
        memcpy(t->out + t->moved, letter, part);
        t->moved += part;
        way->taken += (long)part;
    }
    return t->moved == bytes;
}
// messages of one pair keep their order
static int is_behind(const task *tasks, int i) {
    for (int j = 0; j < i; j++) {
        int same = tasks[j].kind == tasks[i].kind && tasks[j].peer == tasks[i].peer && tasks[j].comm == tasks[i].comm;
        if (same && tasks[j].moved < tasks[j].n * WIDTHS[tasks[j].type]) return 1;
    }
    return 0;
}
static int exchange(task *tasks, int count) {
    for (long tries = 0;; tries++) {
        comm *open = NULL;
        for (int i = 0; i < count; i++)
            if (tasks[i].kind >= SEND && (is_behind(tasks, i) || !advance(&tasks[i]))) open = tasks[i].comm;
        if (!open) return OK;
        if (!be_patient(open, tries)) return SYSTEM_ERROR;
    }
}

// ---- groups

typedef struct { task *tasks; int count, device; long ticket; } group;
static __thread int depth;
static __thread group queued;
static int run_task(task *t) {
    static int (*const run[])(task *) = {reduce, broadcast, gather, scatter};
    comm *c = t->comm;
    if (t->kind >= SEND) return OK;
    // it begins on all GPUs when the last of them has come to it
    c->shared->moment[c->rank] = standin_done(t->stream);
    if (meet(c)) return SYSTEM_ERROR;
    for (int rank = 0; rank < c->ranks; rank++) standin_not_before(t->stream, c->shared->moment[rank]);
    return meet(c) ? SYSTEM_ERROR : run[t->kind](t);
}
static double duration(const task *t) {
    double bytes = (double)(t->n * WIDTHS[t->type]), ranks = t->comm->ranks;
    // what a ring sends through each link
    double through = t->kind == REDUCE ? 2 * bytes * (ranks - 1) / ranks : t->kind == GATHER || t->kind == SCATTER
                   ? bytes * (ranks - 1) : bytes;
    return 15000 + through / rate("STANDIN_PEER_GBPS", 50);
}
static void *run_group(void *given) {
    group *g = given;
    void *stream = g->tasks[0].stream;
    int status = OK;
    standin_use(g->device);
    standin_work_on(g->ticket);
    long before = nanoseconds();
    // STANDIN_HANG_AFTER collectives of this process, the next never ends
    static long collectives;
    long hang = setting("STANDIN_HANG_AFTER", -1);
    while (hang >= 0 && collectives >= hang && !g->tasks[0].comm->aborted) usleep(1000);
    collectives++;
    for (int i = 0; i < g->count && !status; i++) status = run_task(&g->tasks[i]);
    if (!status) status = exchange(g->tasks, g->count);
    standin_aside(nanoseconds() - before);
    for (int i = 0; i < g->count; i++) {
        if (status) g->tasks[i].comm->error = status;
        else standin_occupy(g->tasks[i].stream, duration(&g->tasks[i]));
    }
    standin_end_pending(stream, g->ticket);
    free(g->tasks);
    free(g);
    return NULL;
}
static int start_group(void) {
    if (!queued.count) return OK;
    int device = standin_device(), error = standin_usable(device);
    if (error) return 1;  // ncclUnhandledCudaError
    group *g = malloc(sizeof *g);
    *g = queued;
    queued = (group){0};
    g->device = device;
    g->ticket = standin_begin_pending(g->tasks[0].stream);
    pthread_t worker;
    if (pthread_create(&worker, NULL, run_group, g)) return SYSTEM_ERROR;
    pthread_detach(worker);
    return OK;
}
static int submit(task t) {
    queued.tasks = realloc(queued.tasks, (size_t)(queued.count + 1) * sizeof t);
    queued.tasks[queued.count++] = t;
    return depth ? OK : start_group();
}
int ncclGroupStart(void) { depth++; return OK; }
int ncclGroupEnd(void) { return --depth ? OK : start_group(); }
int ncclGroupSimulateEnd(void *info) { return OK; }

int ncclAllReduce(const void *in, void *out, size_t n, int type, int op, comm *c, void *stream) {
    return submit((task){REDUCE, in, out, n, type, op, -1, c, stream, 0});
}
int ncclReduce(const void *in, void *out, size_t n, int type, int op, int root, comm *c, void *stream) {
    return submit((task){REDUCE, in, out, n, type, op, root, c, stream, 0});
}
int ncclBroadcast(const void *in, void *out, size_t n, int type, int root, comm *c, void *stream) {
    return submit((task){BROADCAST, in, out, n, type, 0, root, c, stream, 0});
}
int ncclBcast(void *at, size_t n, int type, int root, comm *c, void *stream) {
    return ncclBroadcast(at, at, n, type, root, c, stream);
}
int ncclAllGather(const void *in, void *out, size_t n, int type, comm *c, void *stream) {
    return submit((task){GATHER, in, out, n, type, 0, -1, c, stream, 0});
}
int ncclReduceScatter(const void *in, void *out, size_t n, int type, int op, comm *c, void *stream) {
    return submit((task){SCATTER, in, out, n, type, op, -1, c, stream, 0});
}
int ncclSend(const void *in, size_t n, int type, int peer, comm *c, void *stream) {
    return submit((task){SEND, in, NULL, n, type, 0, peer, c, stream, 0});
}
int ncclRecv(void *out, size_t n, int type, int peer, comm *c, void *stream) {
    return submit((task){RECEIVE, NULL, out, n, type, 0, peer, c, stream, 0});
}
int ncclAlltoAll(const void *in, void *out, size_t n, int type, comm *c, void *stream) {
    size_t bytes = n * WIDTHS[type];
    ncclGroupStart();
    for (int rank = 0; rank < c->ranks; rank++) {
        ncclSend((const char *)in + (size_t)rank * bytes, n, type, rank, c, stream);
        ncclRecv((char *)out + (size_t)rank * bytes, n, type, rank, c, stream);
    }
    return ncclGroupEnd();
}
