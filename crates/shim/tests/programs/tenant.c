/* A small CUDA program for the tests, in two builds: linked against libcuda.so.1 (-DLINKED), or opening it.
 * `tenant SCENARIO`: does what the scenario says, prints what the test looks at, and exits 0 if the driver's
 * answers were as expected. It declares the driver's functions itself, as the header would. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int result;
typedef void *handle;
typedef result launch_kernel(handle f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                             unsigned bz, unsigned shared, handle stream, void **params, void **extra);
typedef result launch_kernel_ex(const void *config, handle f, void **params, void **extra);
typedef result get_proc_address(const char *name, void **pfn, int version, unsigned long long flags, int *status);

#ifdef LINKED
extern result cuInit(unsigned flags);
extern result cuGetErrorName(result error, const char **text);
extern result cuDriverGetVersion(int *version);
extern result cuGetExportTable(const void **table, const void *id);
extern launch_kernel cuLaunchKernel, cuLaunchKernel_ptsz;
extern launch_kernel_ex cuLaunchKernelEx;
extern result cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes);
extern result cuStreamSynchronize(handle stream);
extern result cuGraphLaunch(handle graph, handle stream);
extern get_proc_address cuGetProcAddress_v2;
#ifdef FUTURE
extern int cuFunctionOfAnotherDay(int number);
#endif
static void open_driver(void) {}
#else
static result (*cuInit)(unsigned), (*cuGetErrorName)(result, const char **), (*cuDriverGetVersion)(int *);
static result (*cuGetExportTable)(const void **, const void *);
static launch_kernel *cuLaunchKernel, *cuLaunchKernel_ptsz;
static launch_kernel_ex *cuLaunchKernelEx;
static result (*cuMemcpyHtoD_v2)(unsigned long long, const void *, size_t);
static result (*cuStreamSynchronize)(handle), (*cuGraphLaunch)(handle, handle);
static get_proc_address *cuGetProcAddress_v2;
static void *library;
static void open_driver(void) {
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
#define TAKE(name) *(void **)&name = dlsym(library, #name)
    TAKE(cuInit), TAKE(cuGetErrorName), TAKE(cuDriverGetVersion), TAKE(cuGetExportTable), TAKE(cuLaunchKernel);
    TAKE(cuLaunchKernel_ptsz), TAKE(cuLaunchKernelEx), TAKE(cuMemcpyHtoD_v2), TAKE(cuStreamSynchronize);
    TAKE(cuGraphLaunch), TAKE(cuGetProcAddress_v2);
}
#endif

static void expect(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "not so: %s\n", what);
        exit(2);
    }
}

static result launch(launch_kernel *entry) { return entry(0, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0); }

/* One of each counted kind, and two more launches. */
static void work(void) {
    expect(cuInit(0) == 0, "cuInit");
    expect(launch(cuLaunchKernel) == 0, "cuLaunchKernel");
    expect(launch(cuLaunchKernel_ptsz) == 0, "cuLaunchKernel_ptsz");
    char config[64] = {0};
    expect(cuLaunchKernelEx(config, 0, 0, 0) == 0, "cuLaunchKernelEx");
    expect(cuMemcpyHtoD_v2(0, 0, 0) == 0, "cuMemcpyHtoD_v2");
    expect(cuStreamSynchronize(0) == 0, "cuStreamSynchronize");
    expect(cuGraphLaunch(0, 0) == 0, "cuGraphLaunch");
}

/* As the CUDA runtime does it: everything by cuGetProcAddress. */
static void work_by_query(void) {
    void *init = 0, *kernel = 0, *kernel_per_thread = 0;
    int status = -1;
    expect(cuGetProcAddress_v2("cuInit", &init, 13000, 0, &status) == 0 && status == 0, "query of cuInit");
    expect(((result(*)(unsigned))init)(0) == 0, "cuInit by query");
    expect(cuGetProcAddress_v2("cuLaunchKernel", &kernel, 13000, 0, &status) == 0 && status == 0, "query");
    expect(cuGetProcAddress_v2("cuLaunchKernel", &kernel_per_thread, 13000, 2, &status) == 0, "query per thread");
    expect(kernel != kernel_per_thread, "two streams, two functions");
    launch((launch_kernel *)kernel);
    launch((launch_kernel *)kernel_per_thread);
}

#define THREADS 48
#define LAUNCHES 1000
static pthread_barrier_t barrier;
static void *thread(void *number) {
    pthread_barrier_wait(&barrier);
    /* The threads come with different first calls. */
    long n = (long)number;
    int version = 0;
    if (n % 3 == 0) expect(cuDriverGetVersion(&version) == 0 && version > 0, "version in a thread");
    if (n % 3 == 1) expect(cuInit(0) == 0, "cuInit in a thread");
    for (int i = 0; i < LAUNCHES; i++) expect(launch(cuLaunchKernel) == 0, "launch in a thread");
    return 0;
}
static void threads(void) {
    pthread_t ids[THREADS];
    pthread_barrier_init(&barrier, 0, THREADS);
    for (long n = 0; n < THREADS; n++) pthread_create(&ids[n], 0, thread, (void *)n);
    for (int n = 0; n < THREADS; n++) pthread_join(ids[n], 0);
}

/* Forks while another thread is just opening the driver; the child's loader must be usable. */
static void *first_call(void *unused) {
    (void)unused;
    pthread_barrier_wait(&barrier);
    expect(cuInit(0) == 0, "cuInit beside a fork");
    expect(!dlerror(), "no error of the loader but the program's own");
    return 0;
}
static void fork_beside_first_call(void) {
    pthread_t id;
    pthread_barrier_init(&barrier, 0, 2);
    pthread_create(&id, 0, first_call, 0);
    pthread_barrier_wait(&barrier);
    pid_t child = fork();
    if (child == 0) {
        alarm(600);
        _exit(cuInit(0) == 0 && launch(cuLaunchKernel) == 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    expect(status == 0, "the child's calls");
    pthread_join(id, 0);
}

static void forked(void) {
    pid_t child = fork();
    if (child == 0) {
        work();
        exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    expect(status == 0, "the child's work");
}

static int late;
static void at_exit(void) {
    if (late) expect(launch(cuLaunchKernel) == 0, "a launch in atexit");
}
__attribute__((destructor)) static void destructor(void) {
    if (late) expect(launch(cuLaunchKernel) == 0, "a launch in a destructor");
}

int main(int count, char **arguments) {
    const char *scenario = count > 1 ? arguments[1] : "";
    open_driver();
    if (!strcmp(scenario, "work")) work();
    else if (!strcmp(scenario, "query")) work_by_query();
    else if (!strcmp(scenario, "threads")) threads();
    else if (!strcmp(scenario, "fork")) forked();
    else if (!strcmp(scenario, "fork-beside-first-call")) fork_beside_first_call();
    else if (!strcmp(scenario, "fork-after-work")) work(), forked();
    else if (!strcmp(scenario, "nothing")) return 0;
    else if (!strcmp(scenario, "exit")) late = 1, atexit(at_exit), work();
    else if (!strcmp(scenario, "exit-without-work")) late = 1, atexit(at_exit);
    else if (!strcmp(scenario, "export-table")) {
        const void *table = 0;
        expect(cuGetExportTable(&table, "0123456789abcde") == 0 && table, "cuGetExportTable");
        printf("%llu\n", *(const unsigned long long *)table);
    } else if (!strcmp(scenario, "init")) {
        const char *name = "?";
        int status = -1;
        result direct = cuInit(0), named = cuGetErrorName(direct, &name);
        void *init = 0;
        expect(cuGetProcAddress_v2("cuInit", &init, 12040, 0, &status) == 0 && status == 0 && init, "query of cuInit");
        expect(((result(*)(unsigned))init)(0) == direct, "the same code by query");
        printf("%d %d %s %d\n", direct, named, name, launch(cuLaunchKernel));
    } else if (!strcmp(scenario, "untouched")) {
        void *function = 0;
        int status = -1;
        expect(cuInit(0) == 0, "cuInit");
        expect(cuGetProcAddress_v2("cuNewLaunch", &function, 13000, 0, &status) == 0 && function, "query");
        printf("%d\n", ((int (*)(void))function)());
    }
#ifndef LINKED
    else if (!strcmp(scenario, "dlsym-unknown")) {
        expect(cuInit(0) == 0, "cuInit");
        printf("%s\n", dlsym(library, "cuFunctionOfAnotherDay") ? "found" : "not found");
    } else if (!strcmp(scenario, "global-lookup")) {
        expect(cuInit(0) == 0, "cuInit");
        void *global = dlsym(RTLD_DEFAULT, "cuLaunchKernel");
        printf("%s\n", !global ? "not visible" : global == (void *)cuLaunchKernel ? "the same" : "another");
    } else if (!strcmp(scenario, "dlclose")) {
        work();
        dlclose(library);
        dlclose(library);
        expect(launch(cuLaunchKernel) == 0, "a launch after dlclose");
    }
#endif
#ifdef FUTURE
    else if (!strcmp(scenario, "future")) {
        expect(cuInit(0) == 0, "cuInit");
        printf("%d\n", cuFunctionOfAnotherDay(41));
    }
#endif
    else expect(0, "a scenario of this build");
    return 0;
}
