/* A process without CUDA tells what it sees of itself, and starts itself again: bystander ROUNDS. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int early;

__attribute__((constructor)) static void note(void)
{
    early = errno;
}

static int entries(const char *path)
{
    DIR *folder = opendir(path);
    int count = 0;
    if (folder == NULL)
        return -1;
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

/* The kernel takes a thread that was joined out of the list a moment later. */
static int threads_soon(int most)
{
    int count = entries("/proc/self/task");
    for (int i = 0; i < 1000 && count > most; i++) {
        usleep(1000);
        count = entries("/proc/self/task");
    }
    return count;
}

static void *thread(void *argument)
{
    errno = 77;
    free(malloc(100));
    *(int *)argument = errno;
    return NULL;
}

/* CUDA's functions are not here, by whichever way they are looked for. */
static void look(const char *name)
{
    void *program = dlopen(NULL, RTLD_NOW);
    dlerror();
    void *found = dlsym(RTLD_DEFAULT, name);
    const char *error = dlerror();
    printf("%s: by default %s, error %s;", name, found == NULL ? "absent" : "present",
           error != NULL && strstr(error, name) != NULL ? "named" : "missing");
    found = dlsym(program, name);
    error = dlerror();
    printf(" in the program %s, error %s;", found == NULL ? "absent" : "present",
           error != NULL && strstr(error, name) != NULL ? "named" : "missing");
    found = dlsym(RTLD_NEXT, name);
    error = dlerror();
    printf(" next %s, error %s\n", found == NULL ? "absent" : "present",
           error != NULL && strstr(error, name) != NULL ? "named" : "missing");
}

int main(int count, char **arguments)
{
    int rounds = count > 1 ? atoi(arguments[1]) : 0, kept = 0, before = entries("/proc/self/task");
    pthread_t other;
    char left[16];
    printf("errno %d %d, threads %d, descriptors %d\n", early, errno, before, entries("/proc/self/fd"));
    look("cudaMalloc");
    look("cudaFreeAsync_ptsz");
    look("cuMemAlloc_v2");
    look("cuGetProcAddress_v2");
    look("cuNothing");
    look("ncclCommInitRank");
    errno = 0;
    if (pthread_create(&other, NULL, thread, &kept) != 0 || pthread_join(other, NULL) != 0)
        return 1;
    printf("in a thread %d, after it %d threads\n", kept, threads_soon(before));
    fflush(stdout);
    if (rounds == 0)
        return 0;
    snprintf(left, sizeof left, "%d", rounds - 1);
    execl(arguments[0], arguments[0], left, (char *)NULL);
    return 2;
}
