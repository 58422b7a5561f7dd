/* The C interface of stepscope: what Python calls through ctypes, and any other
 * language may.
 *
 * A function returns a number of at least 0, or one of STEPSCOPE_E_*; then
 * stepscope_last_error() says what went wrong. Nothing throws, aborts, or ends
 * the process, whatever the arguments are: null pointers, numbers that are no
 * handle, and handles that were closed give an error. Texts are UTF-8 and end
 * with a zero byte. Any thread may call any function; calls with the handle of
 * one profile wait for each other.
 *
 * stepscope_abi_version() changes when a function changes its meaning or goes;
 * new functions and new keys in JSON do not change it. */
#ifndef STEPSCOPE_C_H_
#define STEPSCOPE_C_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STEPSCOPE_ABI_VERSION 1
#define STEPSCOPE_API __attribute__((visibility("default")))

#define STEPSCOPE_OK 0
#define STEPSCOPE_E_ARGUMENT (-1) /* a null pointer, a wrong value */
#define STEPSCOPE_E_HANDLE (-2)   /* no such handle, or it was closed */
#define STEPSCOPE_E_FAILED (-3)   /* the job failed */

STEPSCOPE_API int stepscope_abi_version(void);
/* "0.1.0". Never freed. */
STEPSCOPE_API const char* stepscope_version(void);
/* What a shim must have been built from; never freed. See
 * stepscope_profile_start(). */
STEPSCOPE_API const char* stepscope_shim_id(void);
/* Of the last call on this thread that returned an error; valid until the next
 * call on this thread. "" if there was none. */
STEPSCOPE_API const char* stepscope_last_error(void);

/* Runs a job that needs no LibTorch. `request` is a JSON object; null stands
 * for {}. `*result` is text that the caller frees with stepscope_free(); null
 * after an error. Jobs:
 *   "version"   {}
 *   "analyze"   {"paths": [...],
 *                "format": "text" | "json" | "markdown" | "html",
 *                "verbose": bool, "run": "", "cycle": -1, "rank": -1,
 *                "cores": -1, "threads": -1,
 *                "loss": {"name", "detail", "count": 1}}: a note about the
 *               recording that the report puts before those of the file
 *   "compare"   {"a": path, "b": path, "format", "rank": -1}
 *   "what_if"   {"path", "changes": {"workers": 2, ...},
 *                "findings": [id, ...], "format": "text" | "json"}
 *   "top"       {"path", "by": "self" | "total" | "calls" | "gpu", "limit": 0,
 *                "by_shape": bool, "format": "text" | "json"}
 *   "list"      {"dir": path}: the runs of a folder, as JSON
 *   "rules"     {}: the texts of all rules, as JSON
 *   "rank"      {}: {"rank", "world_size", "problem"} of this process, by the
 *               launcher's variables; "problem" says why they were ignored
 * and three that make, in many processes, the report that "analyze" makes of
 * the ranks of a job in one:
 *   "traces"    {"path", "run": "", "cycle": -1}: {"traces": [path, ...],
 *                "passed_over": ["path: why", ...],
 *                "unreadable": {path: why}}
 *   "digest"    {"path": of one trace, "source": what the report calls it}:
 *                {"rank", "world_size", "digest": base64}
 *   "merge"     {"digests": [files with decoded digests], "where": the folder of
 *                their traces, "unreadable": {path of a trace: why}}: the
 *                report as JSON, which names the ranks that are missing in
 *                that folder; an error if the digests are not of the ranks of
 *                one run
 * "format" is "json" where it is missing. */
STEPSCOPE_API int stepscope_call(const char* name, const char* request,
                                 char** result);
STEPSCOPE_API void stepscope_free(char* text);

/* Recording. ------------------------------------------------------------- */

/* The functions of a torch shim (shim.h); opaque here. */
typedef struct stepscope_shim stepscope_shim;

/* Starts a profile, as stepscope/profile.h describes it; the calling thread is
 * the one that trains. `options` is a JSON object with the fields of
 * ProfileOptions ("log_dir", "name", "schedule": {"skip_first", "wait",
 * "warmup", "active", "repeat"}, "record_shapes", ...; docs/python.md; those
 * that are times end in "_ms"), and "spool_dir": a folder for the traces of
 * windows where there is no log_dir.
 * Keys that are not known are an error. `shim` may be null: then operators are
 * not recorded. Errors: STEPSCOPE_E_ARGUMENT, STEPSCOPE_E_FAILED (another
 * profile records, the shim is of another build). */
STEPSCOPE_API int stepscope_profile_start(const char* options,
                                          const stepscope_shim* shim,
                                          uint64_t* handle);

/* How an interpreter tells which modules run (stepscope/module_hook.h, which
 * says when and where the functions are called). */
typedef int32_t (*stepscope_open_calls)(void* user, uint64_t* calls,
                                        int32_t capacity);
typedef int32_t (*stepscope_describe)(void* user, uint64_t call, char* text,
                                      int32_t capacity);
/* For profiles that start later with "with_modules". The functions must stay
 * for the rest of the process; both null: none any more. STEPSCOPE_E_ARGUMENT
 * if one is null. */
STEPSCOPE_API int stepscope_module_hook(stepscope_open_calls open_calls,
                                        stepscope_describe describe,
                                        void* user);

/* The key-value store that the ranks of a job share, through which they hand
 * rank 0 their windows (stepscope/rank_exchange.h). Called on a profile's
 * background thread, one call at a time, until the profile is finished. */
#define STEPSCOPE_STORE_EMPTY (-1)  /* nothing under that key yet */
#define STEPSCOPE_STORE_NONE (-2)   /* this program has no store */
#define STEPSCOPE_STORE_FAILED (-3) /* it cannot be reached */
/* 0, or STEPSCOPE_STORE_*. `key` is a text, `value` any bytes. */
typedef int64_t (*stepscope_put)(void* user, const char* key, const void* value,
                                 int64_t size);
/* The size of the value, which is copied to `value` if `capacity` suffices, or
 * STEPSCOPE_STORE_*; returns at once. `value` may be null, with capacity 0. */
typedef int64_t (*stepscope_get)(void* user, const char* key, void* value,
                                 int64_t capacity);
/* For profiles that start later. The functions must stay for the rest of the
 * process; both null: none any more. STEPSCOPE_E_ARGUMENT if one is null. */
STEPSCOPE_API int stepscope_exchange(stepscope_put put, stepscope_get get,
                                     void* user);

/* Bits that stepscope_profile_step() returns. */
#define STEPSCOPE_STEP_RECORDING 1 /* collectors are on in the next step */
#define STEPSCOPE_STEP_WINDOW                                              \
  2                           /* a window was analysed since the last step \
                               */
#define STEPSCOPE_STEP_DONE 4 /* no further window will be recorded */
/* With "signal_grace_ms": a signal asks the program to end, and the loop has
 * ended. Show what there is to show, and close the profile. */
#define STEPSCOPE_STEP_ENDING 8

/* With "marked_steps", a step begins; else nothing happens. */
STEPSCOPE_API int stepscope_profile_begin_step(uint64_t handle);
/* A step has ended. */
STEPSCOPE_API int stepscope_profile_step(uint64_t handle);
/* The loop has ended: closes the window and waits for the files, at most
 * "stop_timeout_ms". May be called again. STEPSCOPE_E_FAILED with the profile's
 * first error. */
STEPSCOPE_API int stepscope_profile_finish(uint64_t handle);
/* 1 if a signal asks the program to end, as STEPSCOPE_STEP_ENDING says it; 0 if
 * none does. It may come in the loop's last step, so look after
 * stepscope_profile_finish(), too. */
STEPSCOPE_API int stepscope_profile_ending(uint64_t handle);
/* The number of windows whose reports and files are there. */
STEPSCOPE_API int stepscope_profile_windows(uint64_t handle);
/* The report of a window, from 0; -1 is the last one. `what`: "json",
 * "text", "markdown", or "trace", the path of its trace file; "job": on rank 0
 * of a job of several ranks the report of all of them, as JSON, else "". */
STEPSCOPE_API int stepscope_profile_report(uint64_t handle, int window,
                                           const char* what, char** result);
/* Finishes the profile if it is not, and forgets it. Where a signal asks for
 * that, ends the program by it. */
STEPSCOPE_API int stepscope_profile_close(uint64_t handle);

/* Where the number of the open window stands; 0 while none is open. Never
 * null, valid for ever; ranges need to be opened only while it is not 0. */
STEPSCOPE_API const uint64_t* stepscope_window(void);

/* Kinds of ranges. */
#define STEPSCOPE_RANGE_USER 0
#define STEPSCOPE_RANGE_PHASE 1  /* "data", "forward", "backward", ... */
#define STEPSCOPE_RANGE_MODULE 2 /* `detail` is the class */

/* Opens a range on this thread. `*range` is 0, and closing it does nothing,
 * where no window is open. `detail` may be null. */
STEPSCOPE_API int stepscope_range_open(int kind, const char* name,
                                       const char* detail, uint64_t* range);
/* STEPSCOPE_E_HANDLE if this thread has no such range open. */
STEPSCOPE_API int stepscope_range_close(uint64_t range);

/* A loader of the program: {"name", "kind": "in-process" | "threads" |
 * "processes", "workers", "batch_size", "prefetch_factor", "pin_memory",
 * "persistent_workers"}; the last two are 0 or 1, and -1 is unknown. */
STEPSCOPE_API int stepscope_loader_add(const char* facts, uint64_t* handle);
/* The loop has waited for a batch of this loader. */
STEPSCOPE_API int stepscope_loader_wait(uint64_t handle);
STEPSCOPE_API int stepscope_loader_remove(uint64_t handle);

#ifdef __cplusplus
}
#endif

#endif /* STEPSCOPE_C_H_ */
