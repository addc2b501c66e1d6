/* Makes calls of one program fail, as a failing or a full disk does: preloaded by test_system_errors.py.

   FAULT=write:28:/store/   calls of `write` on files whose path holds `/store/` fail with errno 28
   FAULT_SKIP=3             the first three of them succeed
   FAULT_AFTER=PATH         all succeed while PATH is not there
   FAULT_LOG=PATH           each of these calls adds a byte to this file

   Programs that the program starts are left alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static char call[32], under[4096];
static const char *after;
static int number, skip, seen, record = -1;
static pid_t program;

__attribute__((constructor)) static void begin(void)
{
    const char *fault = getenv("FAULT"), *skipped = getenv("FAULT_SKIP"), *log = getenv("FAULT_LOG");
    if (!fault || sscanf(fault, "%31[^:]:%d:%4095s", call, &number, under) != 3)
        return;
    skip = skipped ? atoi(skipped) : 0;
    after = getenv("FAULT_AFTER") ? strdup(getenv("FAULT_AFTER")) : NULL;
    if (log)
        record = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    program = getpid();
    unsetenv("LD_PRELOAD");
}

static int fails(const char *name, const char *path)
{
    char mark = '.';
    if (getpid() != program || strcmp(name, call) || !path || !strstr(path, under))
        return 0;
    if (after && access(after, F_OK))
        return 0;
    if (record >= 0) {
        ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");
        if (real(record, &mark, 1, 0) < 0)
            abort();
    }
    if (seen++ < skip)
        return 0;
    errno = number;
    return 1;
}

static const char *path_of(int fd)
{
    static __thread char path[4096];
    char link[64];
    ssize_t size;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, path, sizeof path - 1);
    if (size < 0)
        return NULL;
    path[size] = 0;
    return path;
}

#define STAND_IN(result, name, parameters, arguments, path)   \
    result name parameters                                    \
    {                                                         \
        static result(*real) parameters;                      \
        if (!real)                                            \
            real = dlsym(RTLD_NEXT, #name);                   \
        return fails(#name, path) ? -1 : real arguments;      \
    }

STAND_IN(int, fsync, (int fd), (fd), path_of(fd))
STAND_IN(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size), path_of(fd))
STAND_IN(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at),
         (fd, data, size, at), path_of(fd))
STAND_IN(int, mkdir, (const char *path, mode_t mode), (path, mode), path)
STAND_IN(int, rename, (const char *path, const char *to), (path, to), path)
