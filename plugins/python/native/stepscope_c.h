/* The C interface of stepscope. Python calls it through ctypes; other languages
 * may use it, too.
 *
 * A function returns a number of at least 0, or one of STEPSCOPE_E_*. After an
 * error stepscope_last_error() says what went wrong. No function throws, aborts
 * or ends the process, whatever its arguments are: null pointers, invalid
 * handles and closed handles give an error. Texts are UTF-8 and end with a zero
 * byte. Any thread may call any function. Calls with the handle of the same
 * profile wait for each other.
 *
 * stepscope_abi_version() changes when a function is removed or changes its
 * meaning. New functions and new keys in JSON do not change it. */
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
/* Returns, for example, "0.1.0". Never freed. */
STEPSCOPE_API const char* stepscope_version(void);
/* The id of the sources that a shim must have been built from; never freed. See
 * stepscope_profile_start(). */
STEPSCOPE_API const char* stepscope_shim_id(void);
/* The message of the last call on this thread that returned an error; "" if
 * there was none. Valid until the next call on this thread. */
STEPSCOPE_API const char* stepscope_last_error(void);

/* Runs a job that needs no LibTorch. `request` is a JSON object; null stands
 * for {}. `*result` becomes a text that the caller frees with stepscope_free();
 * it is null after an error. Jobs:
 *   "version"   {}
 *   "analyze"   {"paths": [...],
 *                "format": "text" | "json" | "markdown" | "html",
 *                "verbose": bool, "run": "", "cycle": -1, "rank": -1,
 *                "cores": -1, "threads": -1,
 *                "loss": {"name", "detail", "count": 1}}: a note about the
 *               recording, which the report puts before the file's own notes
 *   "compare"   {"a": path, "b": path, "format", "rank": -1}
 *   "what_if"   {"path", "changes": {"workers": 2, ...},
 *                "findings": [id, ...], "format": "text" | "json"}
 *   "top"       {"path", "by": "self" | "total" | "calls" | "gpu", "limit": 0,
 *                "by_shape": bool, "format": "text" | "json"}
 *   "list"      {"dir": path}: the runs of a folder, as JSON
 *   "rules"     {}: the texts of all rules, as JSON
 *   "rank"      {}: {"rank", "world_size", "problem"} of this process, from
 *               the launcher's variables; "problem" says why they were ignored
 * Three more jobs make the report of a job's ranks in many processes, which
 * "analyze" makes in one process:
 *   "traces"    {"path", "run": "", "cycle": -1}: {"traces": [path, ...],
 *                "passed_over": ["path: why", ...],
 *                "unreadable": {path: why}}
 *   "digest"    {"path": of one trace, "source": its name in the report}:
 *                {"rank", "world_size", "digest": base64}
 *   "merge"     {"digests": [files with decoded digests], "where": the folder
 *                of their traces, "unreadable": {path of a trace: why}}: the
 *                report as JSON, which names the ranks that are missing in
 *                that folder; an error if the digests do not belong to the
 *                ranks of one run
 * If "format" is missing, it is "json". */
STEPSCOPE_API int stepscope_call(const char* name, const char* request,
                                 char** result);
STEPSCOPE_API void stepscope_free(char* text);

/* Recording. ------------------------------------------------------------- */

/* The functions of a torch shim (shim.h); opaque here. */
typedef struct stepscope_shim stepscope_shim;

/* Starts a profile (stepscope/profile.h). The calling thread counts as the
 * training thread. `options` is a JSON object with the fields of ProfileOptions
 * ("log_dir", "name", "schedule": {"skip_first", "wait", "warmup", "active",
 * "repeat"}, "record_shapes", ...; see docs/python.md). The names of fields
 * that are times end in "_ms". One more key is "spool_dir": a folder for the
 * traces of windows if there is no log_dir. Unknown keys are an error. If
 * `shim` is null, operators are not recorded. Errors: STEPSCOPE_E_ARGUMENT,
 * STEPSCOPE_E_FAILED (another profile records, or the shim is from another
 * build). */
STEPSCOPE_API int stepscope_profile_start(const char* options,
                                          const stepscope_shim* shim,
                                          uint64_t* handle);

/* The functions with which an interpreter tells which modules run.
 * stepscope/module_hook.h says when and where they are called. */
typedef int32_t (*stepscope_open_calls)(void* user, uint64_t* calls,
                                        int32_t capacity);
typedef int32_t (*stepscope_describe)(void* user, uint64_t call, char* text,
                                      int32_t capacity);
/* Sets these functions for profiles that start later with "with_modules". They
 * must stay valid for the rest of the process. Two nulls remove them.
 * STEPSCOPE_E_ARGUMENT if only one is null. */
STEPSCOPE_API int stepscope_module_hook(stepscope_open_calls open_calls,
                                        stepscope_describe describe,
                                        void* user);

/* The key-value store that the ranks of a job share. They use it to send their
 * windows to rank 0 (stepscope/rank_exchange.h). Its functions are called on a
 * profile's background thread, one call at a time, until the profile is
 * finished. */
#define STEPSCOPE_STORE_EMPTY (-1)  /* nothing under that key yet */
#define STEPSCOPE_STORE_NONE (-2)   /* this program has no store */
#define STEPSCOPE_STORE_FAILED (-3) /* it cannot be reached */
/* Returns 0, or STEPSCOPE_STORE_*. `key` is a text, `value` any bytes. */
typedef int64_t (*stepscope_put)(void* user, const char* key, const void* value,
                                 int64_t size);
/* Returns the size of the value, or STEPSCOPE_STORE_*. Copies it to `value` if
 * `capacity` is large enough. Does not wait. `value` may be null, with capacity
 * 0. */
typedef int64_t (*stepscope_get)(void* user, const char* key, void* value,
                                 int64_t capacity);
/* Sets these functions for profiles that start later. They must stay valid for
 * the rest of the process. Two nulls remove them. STEPSCOPE_E_ARGUMENT if only
 * one is null. */
STEPSCOPE_API int stepscope_exchange(stepscope_put put, stepscope_get get,
                                     void* user);

/* Bits that stepscope_profile_step() returns. */
#define STEPSCOPE_STEP_RECORDING 1 /* collectors are on in the next step */
#define STEPSCOPE_STEP_WINDOW                                              \
  2                           /* a window was analysed since the last step \
                               */
#define STEPSCOPE_STEP_DONE 4 /* no further window will be recorded */
/* With "signal_grace_ms": a signal has asked the program to end, and the loop
 * has ended. Show the reports and close the profile. */
#define STEPSCOPE_STEP_ENDING 8

/* With "marked_steps", a step begins. Otherwise does nothing. */
STEPSCOPE_API int stepscope_profile_begin_step(uint64_t handle);
/* A step has ended. */
STEPSCOPE_API int stepscope_profile_step(uint64_t handle);
/* The loop has ended: closes the window and waits for the files, at most
 * "stop_timeout_ms". May be called again. STEPSCOPE_E_FAILED with the profile's
 * first error. */
STEPSCOPE_API int stepscope_profile_finish(uint64_t handle);
/* Returns 1 if a signal has asked the program to end (as
 * STEPSCOPE_STEP_ENDING), else 0. The signal may come in the loop's last step,
 * so call this after stepscope_profile_finish(), too. */
STEPSCOPE_API int stepscope_profile_ending(uint64_t handle);
/* Returns the number of windows whose reports and files are complete. */
STEPSCOPE_API int stepscope_profile_windows(uint64_t handle);
/* Gives the report of a window, counted from 0; -1 is the last one. `what`:
 * "json", "text", "markdown", or "trace" for the path of its trace file. "job"
 * gives the report of all ranks as JSON on rank 0 of a job of several ranks,
 * and "" otherwise. */
STEPSCOPE_API int stepscope_profile_report(uint64_t handle, int window,
                                           const char* what, char** result);
/* Finishes the profile if it is not finished, and deletes it. If a signal has
 * asked the program to end, ends the program with that signal. */
STEPSCOPE_API int stepscope_profile_close(uint64_t handle);

/* Returns the address of the open window's number, which is 0 while no window
 * is open. Never null, and valid forever. Ranges need to be opened only while
 * the number is not 0. */
STEPSCOPE_API const uint64_t* stepscope_window(void);

/* Kinds of ranges. */
#define STEPSCOPE_RANGE_USER 0
#define STEPSCOPE_RANGE_PHASE 1  /* "data", "forward", "backward", ... */
#define STEPSCOPE_RANGE_MODULE 2 /* `detail` is the class */

/* Opens a range on this thread. If no window is open, `*range` becomes 0, and
 * closing it does nothing. `detail` may be null. */
STEPSCOPE_API int stepscope_range_open(int kind, const char* name,
                                       const char* detail, uint64_t* range);
/* Closes a range. STEPSCOPE_E_HANDLE if this thread has no such range open. */
STEPSCOPE_API int stepscope_range_close(uint64_t range);

/* Registers a loader of the program: {"name", "kind": "in-process" | "threads"
 * | "processes", "workers", "batch_size", "prefetch_factor", "pin_memory",
 * "persistent_workers"}. The last two are 0 or 1. -1 means unknown. */
STEPSCOPE_API int stepscope_loader_add(const char* facts, uint64_t* handle);
/* The loop has waited for a batch of this loader. */
STEPSCOPE_API int stepscope_loader_wait(uint64_t handle);
STEPSCOPE_API int stepscope_loader_remove(uint64_t handle);

#ifdef __cplusplus
}
#endif

#endif /* STEPSCOPE_C_H_ */
