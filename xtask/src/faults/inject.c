/* Disturbs the file system calls of one process below one folder: the fault injector of `cargo xtask faults`.
 *
 * Preloaded (LD_PRELOAD), it numbers the calls below FAULTS_UNDER from 1 and acts on the one numbered FAULTS_AT:
 *
 *   FAULTS_DO=errno N     the call fails with error N
 *   FAULTS_DO=short       a write takes only half of its bytes
 *   FAULTS_DO=full        a write takes only half, and from then on whatever takes space fails with ENOSPC
 *   FAULTS_DO=kill        SIGKILL before the call
 *   FAULTS_DO=run CMD     a shell runs CMD to its end before the call, undisturbed
 *
 *   FAULTS_TRACE=FILE     record every call with its data; trace.rs reads it
 *   FAULTS_OPEN_FILES=X   unlinking an open file: `refuse` (EBUSY), or `hide` (renamed until closed, as NFS and FUSE do)
 *
 * Nothing below the folder is really synced: a killed process leaves the page cache behind, and what a power loss
 * leaves follows from the trace. The calls themselves are raw system calls, so that no symbol has to be looked up. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum action { NONE, ERRNO, SHORT, FULL, KILL, RUN };

static const char *under, *command, *open_files;
static int trace = -1, action_errno, disk_is_full;
static enum action action;
static long at, number;
/* Held during each call, so that the trace has the order of the effects. */
static pthread_mutex_t one_call = PTHREAD_MUTEX_INITIALIZER;

/* One call below the folder. `a` and `b` are numbers of its family's own, see trace.rs. */
struct call {
    const char *family;
    const char *path, *to;
    ino_t inode;
    long a, b;
    const struct iovec *data;
    int hit;
};

__attribute__((constructor)) static void read_environment(void)
{
    static const struct { const char *name; enum action action; } actions[] = {
        { "short", SHORT }, { "full", FULL }, { "kill", KILL },
    };
    const char *act = getenv("FAULTS_DO"), *file = getenv("FAULTS_TRACE"), *n = getenv("FAULTS_AT");
    for (size_t i = 0; act && i < sizeof actions / sizeof *actions; i++)
        if (!strcmp(act, actions[i].name))
            action = actions[i].action;
    if (act && !strncmp(act, "errno ", 6)) {
        action = ERRNO;
        action_errno = atoi(act + 6);
    } else if (act && !strncmp(act, "run ", 4)) {
        action = RUN;
        command = act + 4;
    }
    at = n ? atol(n) : 0;
    open_files = getenv("FAULTS_OPEN_FILES");
    if (file)
        trace = syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    under = getenv("FAULTS_UNDER");
}

/* Which calls are below the folder. */

static int is_under(const char *path)
{
    size_t n = under ? strlen(under) : 0;
    return n && !strncmp(path, under, n) && (path[n] == 0 || path[n] == '/');
}

/* The path behind a descriptor; empty if there is none. */
static const char *path_of(int fd, char *out)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = fd < 0 ? -1 : readlink(link, out, PATH_MAX - 1);
    out[n < 0 ? 0 : n] = 0;
    return out;
}

/* A path as the *at calls understand it, made absolute. */
static const char *resolve(int folder, const char *path, char *out)
{
    if (path[0] == '/') {
        snprintf(out, PATH_MAX, "%s", path);
        return out;
    }
    if (folder == AT_FDCWD)
        out = getcwd(out, PATH_MAX - 1) ? out : strcpy(out, "");
    else
        path_of(folder, out);
    size_t n = strlen(out);
    snprintf(out + n, PATH_MAX - n, "/%s", path);
    return out;
}

static struct stat stat_of(int fd)
{
    struct stat found;
    memset(&found, 0, sizeof found);
    if (fd >= 0)
        fstat(fd, &found);
    return found;
}

/* What happens to a call. */

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static int takes_space(const struct call *call)
{
    int is_new = !strcmp(call->family, "open") && (call->a & O_CREAT) && access(call->path, F_OK);
    return is_new || !strcmp(call->family, "write") || !strcmp(call->family, "mkdir") || !strcmp(call->family, "link");
}

/* Decides what to do with a call: 0 to make it, 1 to make half of it, -1 to fail with errno. */
static int begin(struct call *call)
{
    int is_write = !strcmp(call->family, "write");
    pthread_mutex_lock(&one_call);
    call->hit = ++number == at;
    if (call->hit && action == KILL)
        die();
    if (call->hit && action == RUN) {
        unsetenv("LD_PRELOAD");
        if (system(command)) { /* its own status tells */ }
    }
    if (call->hit && action == FULL)
        disk_is_full = 1;
    else if (disk_is_full && takes_space(call))
        return errno = ENOSPC, -1;
    if (call->hit && action == ERRNO)
        return errno = action_errno, -1;
    return call->hit && is_write && (action == SHORT || action == FULL);
}

static void put(const void *bytes, size_t n)
{
    for (const char *next = bytes; n > 0;) {
        ssize_t wrote = syscall(SYS_write, trace, next, n);
        if (wrote <= 0)
            abort();
        next += wrote;
        n -= wrote;
    }
}

static void record(const struct call *call, long result)
{
    char line[2 * PATH_MAX + 128];
    int n = snprintf(line, sizeof line, "%ld %s %ld %lu %ld %ld %s\t%s\n", number, call->family, result,
                     (unsigned long)call->inode, call->a, call->b, call->path, call->to ? call->to : "");
    put(line, n);
    long left = call->data ? result : 0;
    for (const struct iovec *part = call->data; left > 0; part++) {
        long take = left < (long)part->iov_len ? left : (long)part->iov_len;
        put(part->iov_base, take);
        left -= take;
    }
}

static long end(struct call *call, long result)
{
    int error = errno;
    if (trace >= 0)
        record(call, result < 0 ? -error : result);
    pthread_mutex_unlock(&one_call);
    errno = error;
    return result;
}

/* Opening and closing. */

static int open_call(int folder, const char *path, int flags, mode_t mode)
{
    char full[PATH_MAX];
    struct call call = { .family = "open", .path = resolve(folder, path, full), .a = flags };
    if (!is_under(call.path))
        return syscall(SYS_openat, folder, path, flags, mode);
    int verdict = begin(&call), error = errno;
    call.b = (flags & O_CREAT) && access(call.path, F_OK);
    errno = error;
    int fd = verdict < 0 ? -1 : syscall(SYS_openat, folder, path, flags, mode);
    error = errno;
    call.inode = stat_of(fd).st_ino;
    errno = error;
    return end(&call, fd);
}

#define MODE_OF(flags)                                                                                                 \
    va_list rest;                                                                                                      \
    va_start(rest, flags);                                                                                             \
    mode_t mode = (flags) & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                          \
    va_end(rest)

int open(const char *path, int flags, ...)
{
    MODE_OF(flags);
    return open_call(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    MODE_OF(flags);
    return open_call(folder, path, flags, mode);
}

int open64(const char *, int, ...) __attribute__((alias("open")));
int openat64(int, const char *, int, ...) __attribute__((alias("openat")));

static int is_open(struct stat file)
{
    for (int fd = 0; fd < 1024; fd++) {
        struct stat found = stat_of(fd);
        if (found.st_ino == file.st_ino && found.st_dev == file.st_dev)
            return 1;
    }
    return 0;
}

/* The last descriptor of a hidden file takes it along. */
int close(int fd)
{
    char path[PATH_MAX];
    if (!open_files || !is_under(path_of(fd, path)) || !strstr(path, "/.hidden-"))
        return syscall(SYS_close, fd);
    struct stat file = stat_of(fd);
    int result = syscall(SYS_close, fd);
    if (!is_open(file))
        syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    return result;
}

/* Writing and syncing. */

static ssize_t write_call(int fd, const struct iovec *data, int count, off_t offset, int is_positioned)
{
    char full[PATH_MAX];
    struct call call = { .family = "write", .path = path_of(fd, full), .data = data };
    struct iovec half = { data->iov_base, data->iov_len > 1 ? data->iov_len / 2 : data->iov_len };
    int counted = count > 0 && is_under(call.path);
    int verdict = counted ? begin(&call) : 0;
    if (counted) {
        int flags = fcntl(fd, F_GETFL);
        struct stat file = stat_of(fd);
        call.inode = file.st_ino;
        call.a = is_positioned ? offset : flags & O_APPEND ? file.st_size : lseek(fd, 0, SEEK_CUR);
        call.b = (flags & O_DSYNC) != 0;
    }
    if (verdict > 0) {
        data = &half;
        count = 1;
    }
    ssize_t done = -1;
    if (verdict >= 0)
        done = is_positioned ? syscall(SYS_pwritev, fd, data, count, offset, 0) : syscall(SYS_writev, fd, data, count);
    return counted ? end(&call, done) : done;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    struct iovec data = { (void *)bytes, n };
    return write_call(fd, &data, 1, 0, 0);
}

ssize_t writev(int fd, const struct iovec *data, int count)
{
    return write_call(fd, data, count, 0, 0);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t offset)
{
    struct iovec data = { (void *)bytes, n };
    return write_call(fd, &data, 1, offset, 1);
}

ssize_t pwritev(int fd, const struct iovec *data, int count, off_t offset)
{
    return write_call(fd, data, count, offset, 1);
}

ssize_t pwrite64(int, const void *, size_t, off_t) __attribute__((alias("pwrite")));
ssize_t pwritev64(int, const struct iovec *, int, off_t) __attribute__((alias("pwritev")));

/* Copies within the kernel are refused, so that programs fall back to writes, which the trace can record. */
ssize_t copy_file_range(int from, off_t *in, int to, off_t *out, size_t n, unsigned flags)
{
    char full[PATH_MAX];
    if (is_under(path_of(to, full)))
        return errno = ENOSYS, -1;
    return syscall(SYS_copy_file_range, from, in, to, out, n, flags);
}

ssize_t sendfile(int to, int from, off_t *offset, size_t n)
{
    char full[PATH_MAX];
    if (is_under(path_of(to, full)))
        return errno = ENOSYS, -1;
    return syscall(SYS_sendfile, to, from, offset, n);
}

ssize_t sendfile64(int, int, off_t *, size_t) __attribute__((alias("sendfile")));

static int sync_call(int fd, long system_call)
{
    char full[PATH_MAX];
    struct stat file = stat_of(fd);
    struct call call = { .family = "sync", .path = path_of(fd, full), .inode = file.st_ino, .a = S_ISDIR(file.st_mode) };
    if (!is_under(call.path))
        return syscall(system_call, fd);
    return end(&call, begin(&call) < 0 ? -1 : 0);
}

int fsync(int fd)
{
    return sync_call(fd, SYS_fsync);
}

int fdatasync(int fd)
{
    return sync_call(fd, SYS_fdatasync);
}

int ftruncate(int fd, off_t n)
{
    char full[PATH_MAX];
    struct call call = { .family = "truncate", .path = path_of(fd, full), .inode = stat_of(fd).st_ino, .a = n };
    if (!is_under(call.path))
        return syscall(SYS_ftruncate, fd, n);
    return end(&call, begin(&call) < 0 ? -1 : syscall(SYS_ftruncate, fd, n));
}

int ftruncate64(int, off_t) __attribute__((alias("ftruncate")));

void *mmap(void *address, size_t n, int protection, int flags, int fd, off_t offset)
{
    char full[PATH_MAX];
    struct call call = { .family = "map", .path = fd < 0 ? "" : path_of(fd, full) };
    if (!is_under(call.path))
        return (void *)syscall(SYS_mmap, address, n, protection, flags, fd, offset);
    return (void *)end(&call, begin(&call) < 0 ? -1 : syscall(SYS_mmap, address, n, protection, flags, fd, offset));
}

void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));

/* Names. */

static int rename_call(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    char a[PATH_MAX], b[PATH_MAX];
    struct call call = { .family = "rename", .path = resolve(from_folder, from, a), .to = resolve(to_folder, to, b) };
    if (!is_under(call.path) && !is_under(call.to))
        return syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
    int verdict = begin(&call);
    return end(&call, verdict < 0 ? -1 : syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

int rename(const char *from, const char *to)
{
    return rename_call(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return rename_call(from_folder, from, to_folder, to, 0);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    return rename_call(from_folder, from, to_folder, to, flags);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    char a[PATH_MAX], b[PATH_MAX];
    struct call call = { .family = "link", .path = resolve(from_folder, from, a), .to = resolve(to_folder, to, b) };
    if (!is_under(call.to))
        return syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
    return end(&call, begin(&call) < 0 ? -1 : syscall(SYS_linkat, from_folder, from, to_folder, to, flags));
}

int link(const char *from, const char *to)
{
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* Unlinks as the file system of FAULTS_OPEN_FILES does. */
static int unlink_now(const char *path)
{
    struct stat file;
    char hidden[PATH_MAX];
    if (!open_files || syscall(SYS_newfstatat, AT_FDCWD, path, &file, AT_SYMLINK_NOFOLLOW) || !is_open(file))
        return syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    if (!strcmp(open_files, "refuse"))
        return errno = EBUSY, -1;
    int folder = strrchr(path, '/') - path;
    snprintf(hidden, sizeof hidden, "%.*s/.hidden-%lu", folder, path, (unsigned long)file.st_ino);
    return syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, hidden, 0);
}

int unlinkat(int folder, const char *path, int flags)
{
    char full[PATH_MAX];
    int is_folder = flags & AT_REMOVEDIR;
    struct call call = { .family = is_folder ? "rmdir" : "unlink", .path = resolve(folder, path, full) };
    if (!is_under(call.path))
        return syscall(SYS_unlinkat, folder, path, flags);
    if (begin(&call) < 0)
        return end(&call, -1);
    return end(&call, is_folder ? syscall(SYS_unlinkat, folder, path, flags) : unlink_now(call.path));
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int mkdirat(int folder, const char *path, mode_t mode)
{
    char full[PATH_MAX];
    struct call call = { .family = "mkdir", .path = resolve(folder, path, full) };
    if (!is_under(call.path))
        return syscall(SYS_mkdirat, folder, path, mode);
    return end(&call, begin(&call) < 0 ? -1 : syscall(SYS_mkdirat, folder, path, mode));
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}
