// What the runtime offers the stand-in's other libraries, and its parts each other. A device is this process's ordinal.
#pragma once
#define GRANULE (2UL << 20)
typedef struct { char *at; size_t size; int kind, device; long charged, pooled; } block;  // pooled: a pool's bytes

// cudart.c: which GPUs this process sees, and what they have come to
int standin_gpus(void);
int standin_physical(int device);
int standin_device(void);                // the current one of this thread
void standin_use(int device);            // makes it so, without a context
int standin_usable(int device);          // 0, or the error that any call about this device gives now
int standin_fail(int error);             // keeps the error for cudaGetLastError and gives it back
void standin_fault(int error);           // from now on every call of this process fails with it
int standin_fault_so_far(void);
void standin_count_launch(int device);   // faults on demand come after so many
int standin_capability(int minor);
void standin_trace(const char *kind, const char *name);

// memory.c: what lies where, and who is charged for it
holder *standin_context(int device);
int standin_has_context(int device);
int standin_charge(int device, long bytes);
void standin_record(void *at, size_t size, int kind, int device, long charged);
int standin_forget(void *at);
int standin_find(const void *at, block *out);
void standin_trim(void);                          // what a synchronisation gives back of the pools
void standin_zeros(char *at, size_t size);  // without cost for whole pages

// streams.c: the GPU's time
void standin_occupy(void *stream, double ns);     // a piece of work that takes so long
void standin_await(void *stream);                 // the host waits for a stream
long standin_done(void *stream);                  // when a stream's last work ends, in the GPU's time
void standin_not_before(void *stream, long moment);
void standin_aside(long ns);                      // this much of the host's time was the GPU's work
void standin_operator(int begin, double bytes, double ns);  // around an operator whose work is known as a whole
int standin_operator_is_open(void);
long standin_begin_pending(void *stream);         // what follows on the stream comes after work that is elsewhere
void standin_work_on(long ticket);                // this thread does that work
void standin_end_pending(void *stream, long ticket);
void standin_settle(void);                        // waits until nothing is under way elsewhere

// launches.c and kernels.c
const char *standin_kernel_name(const void *function);
void standin_run(const char *name, void **args, void *stream);
