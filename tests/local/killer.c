/* Kills the process at its n-th rename or link below a folder whose target's name holds a word; for tests only.
 *
 * KILL_BELOW folder, KILL_WORD part of the target's path, KILL_AT n, KILL_WHEN before|after, KILL_COUNT a file that
 * grows by a byte at each such call of any process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int due(const char *target)
{
    const char *below = getenv("KILL_BELOW"), *word = getenv("KILL_WORD"), *at = getenv("KILL_AT");
    const char *count = getenv("KILL_COUNT");
    struct stat status;
    if (!below || !word || !at || !count || !strstr(target, word))
        return 0;
    if (target[0] == '/' && strncmp(target, below, strlen(below)))
        return 0;
    int file = open(count, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0 || write(file, "!", 1) != 1 || fstat(file, &status))
        return 0;
    close(file);
    return status.st_size == atoi(at);
}

static int around(const char *target, int (*call)(const void *), const void *words)
{
    const char *when = getenv("KILL_WHEN");
    int now = due(target);
    if (now && when && !strcmp(when, "before"))
        kill(getpid(), SIGKILL);
    int result = call(words);
    if (now)
        kill(getpid(), SIGKILL);
    return result;
}

struct words { int a, b; const char *from, *to; };

static int real_rename(const void *w)
{
    const struct words *words = w;
    int (*next)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
    return next(words->from, words->to);
}

static int real_renameat(const void *w)
{
    const struct words *words = w;
    int (*next)(int, const char *, int, const char *) = dlsym(RTLD_NEXT, "renameat");
    return next(words->a, words->from, words->b, words->to);
}

static int real_symlink(const void *w)
{
    const struct words *words = w;
    int (*next)(const char *, const char *) = dlsym(RTLD_NEXT, "symlink");
    return next(words->from, words->to);
}

int rename(const char *from, const char *to)
{
    struct words words = {0, 0, from, to};
    return around(to, real_rename, &words);
}

int renameat(int a, const char *from, int b, const char *to)
{
    struct words words = {a, b, from, to};
    return around(to, real_renameat, &words);
}

int symlink(const char *from, const char *to)
{
    struct words words = {0, 0, from, to};
    return around(to, real_symlink, &words);
}
